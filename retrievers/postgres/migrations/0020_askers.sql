-- What is kept of a question says who asked it, as the caller named them, and in which conversation: so that it can be
-- listed and erased by person and by conversation, with all that was derived from it.

ALTER TABLE trace ADD COLUMN asker text, ADD COLUMN conversation text COLLATE "C";
ALTER TABLE message ADD COLUMN asker text;
ALTER TABLE feedback ADD COLUMN asker text, ADD COLUMN conversation text COLLATE "C";
ALTER TABLE exchange
    ADD COLUMN kind text NOT NULL DEFAULT 'ask' CHECK (kind IN ('retrieve', 'augment', 'ask')),
    ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
ALTER TABLE conversation ADD COLUMN erased integer NOT NULL DEFAULT 0;
COMMENT ON TABLE exchange IS 'questions with their answers; feedback is about the trace';
COMMENT ON COLUMN exchange.kind IS 'what was asked for: hits, a prompt or an answer';
COMMENT ON COLUMN message.asker IS 'of the question and its answer alike';
COMMENT ON COLUMN conversation.erased IS 'how often turns were erased: a summary that was begun before is not stored';
CREATE INDEX trace_asker ON trace (tenant, asker) WHERE asker IS NOT NULL;
CREATE INDEX trace_conversation ON trace (tenant, conversation) WHERE conversation IS NOT NULL;
CREATE INDEX message_asker ON message (tenant, asker) WHERE asker IS NOT NULL;
CREATE INDEX exchange_asker ON exchange (tenant, asker, created_at DESC) WHERE asker IS NOT NULL;
CREATE INDEX exchange_conversation ON exchange (tenant, conversation, created_at DESC) WHERE conversation IS NOT NULL;
CREATE INDEX feedback_asker ON feedback (tenant, asker) WHERE asker IS NOT NULL;

-- What was erased lately. A question may be under way meanwhile, here or in another process: what came before the
-- erasure is not written after it. The names are hashed, and the rows go after an hour.
CREATE TABLE erasure (
    tenant text NOT NULL CHECK (tenant <> ''),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    subject bytea NOT NULL,
    principals text[] NOT NULL,
    at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL DEFAULT now() + interval '1 hour',
    PRIMARY KEY (tenant, id)
);
COMMENT ON COLUMN erasure.principals IS 'as whom was erased: what others asked is not concerned';
CREATE INDEX erasure_subject ON erasure (tenant, subject);
CREATE INDEX erasure_expiry ON erasure (tenant, expires_at);
ALTER TABLE erasure ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON erasure TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
CREATE POLICY expired ON erasure AS RESTRICTIVE FOR DELETE TO signalbox_search USING (expires_at <= now());
CREATE POLICY sweep ON erasure TO signalbox_search USING (expires_at <= now());
GRANT SELECT, INSERT, DELETE ON erasure TO signalbox_app;
GRANT SELECT (tenant, id, expires_at), DELETE ON erasure TO signalbox_search;

-- Whether who erases as some principals erases what was asked as others: all of theirs are among their own. What was
-- asked as nobody in particular is for those to erase who ask so, too.
CREATE FUNCTION erases(own text[], principals text[]) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN '*' = ANY (own) OR (principals <@ own AND (cardinality(principals) > 0 OR cardinality(own) = 0));

CREATE FUNCTION erasure_subject(kind text, name text) RETURNS bytea LANGUAGE sql IMMUTABLE
RETURN sha256(convert_to(kind || E'\n' || name, 'UTF8'));

-- Whether something was erased after it was asked.
CREATE FUNCTION erased(asker text, conversation text, principals text[], asked_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT (asker IS NOT NULL OR conversation IS NOT NULL) AND EXISTS (
        SELECT FROM erasure e
        WHERE e.tenant = tenant() AND e.at >= asked_at AND erases(e.principals, $3)
          AND e.subject IN (erasure_subject('user', asker), erasure_subject('conversation', conversation)))
$$;
REVOKE ALL ON FUNCTION erases, erasure_subject, erased FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erases, erasure_subject, erased TO signalbox_app;

-- As before, with erasures.
CREATE OR REPLACE FUNCTION sweep(pass text, most integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    name text;
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker sweeps' USING ERRCODE = 'insufficient_privilege';
    END IF;
    FOREACH name IN ARRAY ARRAY['job', 'trace', 'conversation', 'exchange', 'erasure'] LOOP
        -- From tenant to tenant in the index, which begins with them. What is used again meanwhile stays.
        EXECUTE format($delete$
            WITH RECURSIVE who AS (
                SELECT min(t.tenant) AS tenant FROM %1$I t
                UNION ALL
                SELECT (SELECT min(t.tenant) FROM %1$I t WHERE t.tenant > w.tenant)
                FROM who w WHERE w.tenant IS NOT NULL)
            DELETE FROM %1$I WHERE expires_at <= now() AND (tenant, id) IN (
                SELECT old.tenant, old.id
                FROM who w, LATERAL (SELECT t.tenant, t.id FROM %1$I t
                                     WHERE t.tenant = w.tenant AND t.expires_at <= now()
                                     ORDER BY t.expires_at LIMIT $1) old
                LIMIT $1)
        $delete$, name) USING most;
    END LOOP;
END $$;
