-- Settings and quotas of tenants.
--
-- A tenant changes what is harmless itself. What widens its rights, `sources` and the quotas, the service's role has no
-- right to write: only the owner, acting as `signalbox_tenants`, does. Questions are counted by a function, so that no
-- tenant writes its own use.

CREATE TABLE tenant_setting (
    tenant text PRIMARY KEY CHECK (tenant <> ''),
    sources text[] CHECK (cardinality(sources) > 0),
    time_zone text CHECK (time_zone <> ''),
    week_start smallint CHECK (week_start BETWEEN 0 AND 6),
    fiscal_year_start smallint CHECK (fiscal_year_start BETWEEN 1 AND 12),
    collection text CHECK (collection <> ''),
    language text CHECK (language ~ '^[a-z]{2}$'),
    questions_per_day bigint CHECK (questions_per_day >= 0),
    tokens_per_day bigint CHECK (tokens_per_day >= 0)
);
COMMENT ON TABLE tenant_setting IS 'what differs from the settings of the service; null is as these say';
COMMENT ON COLUMN tenant_setting.sources IS 'names of the sources that questions of the tenant may be put to; null is all';
COMMENT ON COLUMN tenant_setting.collection IS 'asked by questions that name none';

CREATE TABLE tenant_use (
    tenant text PRIMARY KEY CHECK (tenant <> ''),
    day date NOT NULL,
    questions bigint NOT NULL,
    tokens bigint NOT NULL
) WITH (fillfactor = 50);
COMMENT ON COLUMN tenant_use.day IS 'in the time zone of the tenant; it never goes back, so that another zone begins no day anew';
COMMENT ON COLUMN tenant_use.tokens IS 'of all model calls, those of the prompts and of the answers';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tenant_setting', 'tenant_use'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
        EXECUTE format('CREATE POLICY administration ON %I TO signalbox_tenants USING (true) WITH CHECK (true)', name);
    END LOOP;
END $$;
GRANT SELECT ON tenant_setting, tenant_use TO signalbox_app;
GRANT INSERT (tenant, time_zone, week_start, fiscal_year_start, collection, language),
      UPDATE (time_zone, week_start, fiscal_year_start, collection, language) ON tenant_setting TO signalbox_app;
GRANT USAGE ON SCHEMA signalbox TO signalbox_tenants;
GRANT SELECT, INSERT, UPDATE ON tenant_setting, tenant_use TO signalbox_tenants;
-- For the list of all tenants: their names alone.
GRANT SELECT (tenant) ON collection, api_key, access TO signalbox_tenants;
CREATE POLICY administration ON collection FOR SELECT TO signalbox_tenants USING (true);
CREATE POLICY administration ON api_key FOR SELECT TO signalbox_tenants USING (true);
-- `tenant_rules` tells a request both at once.
GRANT SELECT (changed) ON access TO signalbox_tenants;
CREATE POLICY administration ON access FOR SELECT TO signalbox_tenants USING (true);

-- Today in a time zone; in UTC where the server does not know it.
CREATE FUNCTION today(zone text) RETURNS date
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (now() AT TIME ZONE zone)::date;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN (now() AT TIME ZONE 'UTC')::date;
END $$;

-- The end of a day in a time zone.
CREATE FUNCTION day_end(day date, zone text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (day + 1)::timestamp AT TIME ZONE zone;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN (day + 1)::timestamp AT TIME ZONE 'UTC';
END $$;

-- What holds for a request of the tenant, which is counted where there is a quota: it is the statement that all
-- processes count by. `refused` says that a quota is used up; then nothing is counted.
CREATE FUNCTION tenant_rules(scope text, zone text, asking integer,
    OUT access_changed bigint, OUT settings tenant_setting, OUT use tenant_use, OUT ends_at timestamptz, OUT refused boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := verified_tenant(scope);
    in_zone text;
    this_day date;
BEGIN
    access_changed := coalesce((SELECT a.changed FROM access a WHERE a.tenant = who), 0);
    refused := false;
    SELECT s.* INTO settings FROM tenant_setting s WHERE s.tenant = who;
    IF asking > 0 AND settings.questions_per_day IS NULL AND settings.tokens_per_day IS NULL THEN
        RETURN;
    END IF;
    in_zone := coalesce(settings.time_zone, zone);
    this_day := today(in_zone);
    IF asking > 0 AND settings.questions_per_day IS DISTINCT FROM 0 AND settings.tokens_per_day IS DISTINCT FROM 0 THEN
        -- A count that a crash of the server loses costs less than every question's wait for the disk.
        SET LOCAL synchronous_commit = off;
        INSERT INTO tenant_use AS known VALUES (who, this_day, asking, 0)
        ON CONFLICT (tenant) DO UPDATE SET
            day = greatest(known.day, excluded.day),
            questions = CASE WHEN known.day < excluded.day THEN 0 ELSE known.questions END + asking,
            tokens = CASE WHEN known.day < excluded.day THEN 0 ELSE known.tokens END
        WHERE known.day < excluded.day
           OR coalesce(known.questions + asking <= settings.questions_per_day, true)
          AND coalesce(known.tokens < settings.tokens_per_day, true)
        RETURNING known.* INTO use;
    END IF;
    IF use.day IS NULL THEN
        refused := asking > 0;
        SELECT u.* INTO use FROM tenant_use u WHERE u.tenant = who AND u.day >= this_day;
    END IF;
    IF use.day IS NULL THEN
        use := ROW (who, this_day, 0, 0);
    END IF;
    ends_at := day_end(use.day, in_zone);
END $$;

-- Add to a tenant's use of today what no quota has counted.
CREATE FUNCTION note_use(scope text, zone text, asked bigint, spent bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := verified_tenant(scope);
BEGIN
    SET LOCAL synchronous_commit = off;
    INSERT INTO tenant_use AS known
    VALUES (who, today(coalesce((SELECT s.time_zone FROM tenant_setting s WHERE s.tenant = who), zone)),
            greatest(asked, 0), greatest(spent, 0))
    ON CONFLICT (tenant) DO UPDATE SET
        day = greatest(known.day, excluded.day),
        questions = CASE WHEN known.day < excluded.day THEN 0 ELSE known.questions END + excluded.questions,
        tokens = CASE WHEN known.day < excluded.day THEN 0 ELSE known.tokens END + excluded.tokens;
END $$;

GRANT CREATE ON SCHEMA signalbox TO signalbox_tenants;
ALTER FUNCTION tenant_rules OWNER TO signalbox_tenants;
ALTER FUNCTION note_use OWNER TO signalbox_tenants;
REVOKE CREATE ON SCHEMA signalbox FROM signalbox_tenants;
REVOKE ALL ON FUNCTION tenant_rules, note_use, today, day_end FROM PUBLIC;
GRANT EXECUTE ON FUNCTION verified_tenant, today, day_end TO signalbox_tenants;
GRANT EXECUTE ON FUNCTION tenant_rules, note_use TO signalbox_app;
