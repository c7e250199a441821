-- What a person says about an answer beside the score: documents that they opened or found right, and the right filter.
-- `signalbox eval collect` makes labelled questions of it, which needs the trace: it goes when the trace goes, and when
-- the feedback is erased.

ALTER TABLE feedback ALTER COLUMN score DROP NOT NULL;
COMMENT ON COLUMN feedback.score IS 'null while only documents or a filter were given';

CREATE TABLE feedback_label (
    tenant text NOT NULL,
    id uuid NOT NULL,
    document_ids text[] NOT NULL DEFAULT '{}',
    filter jsonb,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, id) REFERENCES feedback (tenant, trace) ON DELETE CASCADE
);
COMMENT ON COLUMN feedback_label.id IS 'the trace, as in feedback';
COMMENT ON COLUMN feedback_label.document_ids IS 'documents that the user opened or found right';
COMMENT ON COLUMN feedback_label.filter IS 'the right filter of the question; {} if no filter is right; null if nothing was said';
CREATE INDEX feedback_label_expiry ON feedback_label (tenant, expires_at);
ALTER TABLE feedback_label ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON feedback_label TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
CREATE POLICY expired ON feedback_label AS RESTRICTIVE FOR DELETE TO signalbox_search USING (expires_at <= now());
CREATE POLICY sweep ON feedback_label TO signalbox_search USING (expires_at <= now());
GRANT SELECT, INSERT, UPDATE, DELETE ON feedback_label TO signalbox_app;
GRANT SELECT (tenant, id, expires_at), DELETE ON feedback_label TO signalbox_search;

-- As before, with labels.
CREATE OR REPLACE FUNCTION sweep(pass text, most integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    name text;
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker sweeps' USING ERRCODE = 'insufficient_privilege';
    END IF;
    FOREACH name IN ARRAY ARRAY['job', 'trace', 'conversation', 'exchange', 'erasure', 'feedback_label'] LOOP
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
