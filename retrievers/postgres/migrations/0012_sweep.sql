-- What has expired goes, of tenants too that write nothing any more.
--
-- As take_job does, the function takes a worker's pass in place of a tenant's scope, and it tells nothing: neither
-- whose rows went nor how many. Its owner may delete here only what has expired, and read only what says so.
CREATE FUNCTION sweep(pass text, most integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    name text;
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker sweeps' USING ERRCODE = 'insufficient_privilege';
    END IF;
    FOREACH name IN ARRAY ARRAY['job', 'trace', 'conversation', 'exchange'] LOOP
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
ALTER FUNCTION sweep OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION sweep FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sweep TO signalbox_app;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['job', 'trace', 'conversation', 'exchange'] LOOP
        EXECUTE format('CREATE POLICY expired ON %I AS RESTRICTIVE FOR DELETE TO signalbox_search USING (expires_at <= now())', name);
        EXECUTE format('GRANT SELECT (tenant, id, expires_at), DELETE ON %I TO signalbox_search', name);
        IF name <> 'job' THEN  -- of which it sees when each is due
            EXECUTE format('CREATE POLICY sweep ON %I TO signalbox_search USING (expires_at <= now())', name);
        END IF;
    END LOOP;
END $$;
