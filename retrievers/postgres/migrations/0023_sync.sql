-- Mirrors: a collection follows a source, deletions included, because what was stored from which item is written down.

CREATE TABLE sync (
    tenant text NOT NULL CHECK (tenant <> ''),
    id uuid NOT NULL,
    collection text NOT NULL,
    source text NOT NULL,
    name text,
    every_s double precision,
    due_at timestamptz,
    documents integer,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);
COMMENT ON COLUMN sync.id IS 'made of tenant, collection and source: who syncs the same again goes on with the same manifest';
COMMENT ON COLUMN sync.collection IS 'its name: the collection may not exist yet';
COMMENT ON COLUMN sync.source IS 'without passwords: these stay with whoever runs it';
COMMENT ON COLUMN sync.name IS 'of its schedule, where it has one';
COMMENT ON COLUMN sync.documents IS 'how many the last whole run left; null before the first';

CREATE TABLE sync_item (
    tenant text NOT NULL,
    sync uuid NOT NULL,
    item text COLLATE "C" NOT NULL,
    version text,
    digest bytea,
    PRIMARY KEY (tenant, sync, item),
    FOREIGN KEY (tenant, sync) REFERENCES sync ON DELETE CASCADE
);
COMMENT ON TABLE sync_item IS 'a file, object, page or row of the source, as it was last read';
COMMENT ON COLUMN sync_item.version IS 'what says that it has not changed: size and times, an etag, a blob, an updated-at column; null has it read again';
COMMENT ON COLUMN sync_item.digest IS 'of its content, where the version alone cannot be trusted';

CREATE TABLE sync_document (
    tenant text NOT NULL,
    collection text NOT NULL,
    document_id text NOT NULL,
    sync uuid NOT NULL,
    item text COLLATE "C",
    run bigint NOT NULL,
    given bytea NOT NULL,
    digest bytea,
    PRIMARY KEY (tenant, collection, document_id),
    FOREIGN KEY (tenant, sync) REFERENCES sync ON DELETE CASCADE
);
COMMENT ON TABLE sync_document IS 'which source and item a document of a collection comes from; written before the document';
COMMENT ON COLUMN sync_document.item IS 'null where no item gives it any more: it is to be deleted';
COMMENT ON COLUMN sync_document.run IS 'number of the attempt that found it last';
COMMENT ON COLUMN sync_document.given IS 'digest of the document as the item gave it';
COMMENT ON COLUMN sync_document.digest IS 'document.digest as this source stored it; null until it has';
CREATE INDEX sync_document_item ON sync_document (tenant, sync, item);

ALTER TABLE job ADD COLUMN sync uuid, ADD COLUMN deleted integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN job.sync IS 'the mirror that it brings up to date, in place of a payload; carried out where the source is known';
-- One run of a mirror at a time, whoever asks for it.
CREATE UNIQUE INDEX job_sync ON job (tenant, sync) WHERE sync IS NOT NULL AND status IN ('queued', 'running');
CREATE INDEX job_of_sync ON job (tenant, sync, delivery) WHERE sync IS NOT NULL;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['sync', 'sync_item', 'sync_document'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO signalbox_app', name);
    END LOOP;
END $$;

-- As before (0010), and: a run of a mirror goes only to a worker that knows its source, and a tenant that has `most`
-- jobs under way on all workers together waits.
DROP FUNCTION take_job(text, double precision);
CREATE FUNCTION take_job(pass text, seconds double precision, known uuid[], most integer)
RETURNS TABLE (tenant text, id uuid, lease uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    who text;
    free record;
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker takes jobs' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Whose last job was started longest ago comes first: many jobs of one tenant hold up no other.
    FOR who IN
        WITH RECURSIVE waiting AS (
            SELECT min(j.tenant) AS tenant FROM job j WHERE j.status IN ('queued', 'running') AND j.free_at <= now()
            UNION ALL
            SELECT (SELECT min(j.tenant) FROM job j
                    WHERE j.status IN ('queued', 'running') AND j.free_at <= now() AND j.tenant > w.tenant)
            FROM waiting w WHERE w.tenant IS NOT NULL)
        SELECT w.tenant FROM waiting w WHERE w.tenant IS NOT NULL
        ORDER BY (SELECT max(j.started_at) FROM job j WHERE j.tenant = w.tenant) NULLS FIRST, w.tenant
    LOOP
        IF most IS NOT NULL THEN
            -- Two workers that look at once must not both find the last place free.
            CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtext('signalbox.take_job'), hashtext(who));
            CONTINUE WHEN (SELECT count(*) FROM job j
                           WHERE j.tenant = who AND j.status = 'running' AND j.free_at > now()) >= most;
        END IF;
        SELECT j.id, j.status INTO free FROM job j
        WHERE j.tenant = who AND j.status IN ('queued', 'running') AND j.free_at <= now()
          AND (j.sync IS NULL OR j.sync = ANY (known))
        ORDER BY j.delivery LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN QUERY UPDATE job j
            SET status = 'running', lease = gen_random_uuid(), free_at = now() + make_interval(secs => seconds),
                started_at = now(), deaths = j.deaths + (free.status = 'running')::integer
            WHERE j.tenant = who AND j.id = free.id
            RETURNING j.tenant, j.id, j.lease;
            RETURN;
        END IF;
    END LOOP;
END $$;
ALTER FUNCTION take_job OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION take_job FROM PUBLIC;
GRANT EXECUTE ON FUNCTION take_job TO signalbox_app;
GRANT SELECT (sync) ON job TO signalbox_search;
