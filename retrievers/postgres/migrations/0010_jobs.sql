-- Stored ingestion: a delivery of documents is written down before it is acknowledged, and carried out by
-- whichever worker is free; what could not be stored is kept with its reason.

CREATE SEQUENCE delivery;

ALTER TABLE document ADD COLUMN delivery bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN document.delivery IS 'number of the delivery it came with: one carried out late does not replace what a later one brought';

CREATE TABLE job (
    tenant text NOT NULL CHECK (tenant <> ''),
    id uuid NOT NULL,
    collection text NOT NULL,
    delivery bigint NOT NULL DEFAULT nextval('delivery'),
    file text,
    payload bytea,
    status text NOT NULL CHECK (status IN ('queued', 'running', 'done', 'failed')),
    free_at timestamptz NOT NULL DEFAULT now(),
    lease uuid,
    tries integer NOT NULL DEFAULT 0,
    deaths integer NOT NULL DEFAULT 0,
    in_hand integer,
    parked integer[] NOT NULL DEFAULT '{}',
    documents integer,
    done integer NOT NULL DEFAULT 0,
    inserted integer NOT NULL DEFAULT 0,
    updated integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    PRIMARY KEY (tenant, id)
);
COMMENT ON COLUMN job.collection IS 'its name: the collection may not exist yet';
COMMENT ON COLUMN job.file IS 'name of the file the payload is; null for a JSON list of records';
COMMENT ON COLUMN job.payload IS 'kept until nothing of it is needed to try again';
COMMENT ON COLUMN job.free_at IS 'from when on a worker may take it: the end of the lease while it is running';
COMMENT ON COLUMN job.lease IS 'token of the one worker that may write for it';
COMMENT ON COLUMN job.tries IS 'how often a dependency failed it';
COMMENT ON COLUMN job.deaths IS 'how many workers did not come back from it';
COMMENT ON COLUMN job.in_hand IS 'the document a worker has in hand while it takes them one by one, to find the one it dies of';
COMMENT ON COLUMN job.parked IS 'documents that workers died of: they are not tried again';
CREATE INDEX job_free ON job (tenant, free_at) WHERE status IN ('queued', 'running');
CREATE INDEX job_started ON job (tenant, started_at);
CREATE INDEX job_delivery ON job (tenant, delivery);
CREATE INDEX job_expiry ON job (tenant, expires_at);

CREATE TABLE dead_letter (
    tenant text NOT NULL,
    job uuid NOT NULL,
    index integer NOT NULL,
    place text NOT NULL,
    document_id text,
    reason text NOT NULL,
    payload bytea,
    failed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, job, index),
    FOREIGN KEY (tenant, job) REFERENCES job ON DELETE CASCADE
);
COMMENT ON COLUMN dead_letter.index IS 'its place in the delivery, from 0';
COMMENT ON COLUMN dead_letter.payload IS 'the record as it came; of a file the job keeps it whole';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['job', 'dead_letter'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO signalbox_app', name);
    END LOOP;
END $$;
GRANT USAGE ON SEQUENCE delivery TO signalbox_app;

-- The next job of any tenant, leased to the caller; nothing when all are done or in good hands.
--
-- A worker serves tenants whose names it does not know, and row security shows it none. This function tells it
-- that one (tenant, id) has work, and nothing of what the work is: its owner may read and write only the columns
-- that say when a job is due. It takes a pass in place of a tenant's scope, signed with the same secret, for a
-- name that no tenant can have; so SQL that runs under a tenant can neither see others' jobs nor take them.
CREATE FUNCTION take_job(pass text, seconds double precision) RETURNS TABLE (tenant text, id uuid, lease uuid)
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
        SELECT j.id, j.status INTO free FROM job j
        WHERE j.tenant = who AND j.status IN ('queued', 'running') AND j.free_at <= now()
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
CREATE POLICY hand_out ON job TO signalbox_search USING (true) WITH CHECK (true);
GRANT SELECT (tenant, id, status, delivery, free_at, started_at, deaths, lease),
      UPDATE (status, lease, free_at, started_at, deaths) ON job TO signalbox_search;
