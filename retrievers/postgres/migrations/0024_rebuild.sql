-- Collections made anew in the background: with another embedder, or split and analysed by another version.
--
-- The new one is a shadow: a collection of its own, with a number, documents and passages of its own, that nobody is
-- shown. The switch is a change of names in one transaction. The old one is then a shadow of the new one, retired, and
-- its rows go some at a time.

ALTER TABLE collection
    ADD COLUMN split integer NOT NULL DEFAULT 1,
    ADD COLUMN shadow_of integer,
    ADD COLUMN built_by uuid,
    ADD COLUMN retired_at timestamptz,
    ADD CONSTRAINT collection_shadow_fkey FOREIGN KEY (tenant, shadow_of) REFERENCES collection ON DELETE CASCADE;
COMMENT ON COLUMN collection.split IS 'version of the splitter that cut its documents into passages';
COMMENT ON COLUMN collection.shadow_of IS 'number of the collection that this one is to replace, or that has replaced it: nobody is shown this one';
COMMENT ON COLUMN collection.built_by IS 'job that made it of what an older one held';
COMMENT ON COLUMN collection.retired_at IS 'when a shadow was given up or replaced: its rows go';
CREATE INDEX collection_shadow ON collection (tenant, shadow_of) WHERE shadow_of IS NOT NULL;

ALTER TABLE job ADD COLUMN rebuild jsonb;
COMMENT ON COLUMN job.rebuild IS 'what it makes of the collection: {"embedder": name, null for the one it has, "after": document id to go on behind}; null for an ingestion';

-- Whether shadows are shown: to who builds, checks or removes them. They hold what the tenant has stored anyway.
CREATE FUNCTION shadows() RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT coalesce(current_setting('signalbox.shadows', true), '') = 'on' $$;
ALTER POLICY own ON collection USING (
    tenant = (SELECT tenant()) AND readable(readers, (SELECT principals()))
    AND (shadow_of IS NULL OR (SELECT shadows()))
    AND (documents > 0 OR part_of IS NOT NULL OR NOT number = ANY ((SELECT concealed(true))::integer[])));
ALTER POLICY platform ON collection USING (
    tenant = '0' AND public_documents > 0 AND shadow_of IS NULL AND (SELECT tenant()) <> '');

-- What expires in a shadow is withdrawn by who builds it.
CREATE OR REPLACE FUNCTION expired_documents(pass text, most integer) RETURNS TABLE (tenant text, collection integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what has expired' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
        SELECT DISTINCT old.tenant, old.collection
        FROM (SELECT d.tenant, d.collection FROM document d
              JOIN collection k ON k.tenant = d.tenant AND k.number = d.collection AND k.shadow_of IS NULL
              WHERE d.enabled AND d.expires_at <= now() ORDER BY d.expires_at LIMIT most) old;
END $$;

-- Shadows whose rows are to go: retired for so long, or of a job that is no more.
CREATE FUNCTION retired_collections(pass text, seconds double precision, most integer)
RETURNS TABLE (tenant text, collection integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what was retired' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
        SELECT k.tenant, k.number FROM collection k
        WHERE k.shadow_of IS NOT NULL AND CASE
            WHEN k.retired_at IS NOT NULL THEN k.retired_at <= now() - make_interval(secs => seconds)
            ELSE NOT EXISTS (SELECT FROM job j WHERE j.tenant = k.tenant AND j.id = k.built_by
                             AND j.status IN ('queued', 'running', 'failed')) END
        LIMIT most;
END $$;

-- Feedback on the documents of a collection goes over to the one that replaces it; of other tenants too, on the
-- platform's documents.
CREATE FUNCTION move_feedback(scope text, from_number integer, to_number integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := verified_tenant(scope);
BEGIN
    IF EXISTS (SELECT FROM collection k WHERE k.tenant = who AND k.number = from_number AND k.shadow_of = to_number) THEN
        UPDATE feedback_document SET collection = to_number WHERE collection = from_number AND (who = '0' OR tenant = who);
    END IF;
END $$;
CREATE POLICY move ON feedback_document TO signalbox_search USING (true) WITH CHECK (true);
GRANT SELECT (tenant, collection), UPDATE (collection) ON feedback_document TO signalbox_search;

ALTER FUNCTION retired_collections OWNER TO signalbox_search;
ALTER FUNCTION move_feedback OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION shadows, retired_collections, move_feedback FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shadows, retired_collections, move_feedback TO signalbox_app;
