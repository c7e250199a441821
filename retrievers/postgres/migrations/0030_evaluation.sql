-- Figures that `signalbox eval run --publish NAME` measured: the newest of each name, which /metrics shows.
--
-- /metrics names no tenant, so a name belongs to one tenant of the database.
CREATE TABLE evaluation (
    tenant text NOT NULL CHECK (tenant <> ''),
    name text COLLATE "C" NOT NULL UNIQUE CHECK (name <> ''),
    dataset text NOT NULL,
    collections text[] NOT NULL,
    measures json NOT NULL,
    answered integer NOT NULL,
    failed integer NOT NULL,
    every_s double precision,
    measured_at timestamptz NOT NULL DEFAULT now(),
    failures bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name)
);
COMMENT ON COLUMN evaluation.name IS 'chosen by the operator; a label of the metrics';
COMMENT ON COLUMN evaluation.measures IS 'averages over the questions by measure, in the order in which they are shown';
COMMENT ON COLUMN evaluation.failed IS 'questions without an answer, which count as missed';
COMMENT ON COLUMN evaluation.every_s IS 'time between two runs; null if nothing repeats them';
COMMENT ON COLUMN evaluation.failures IS 'runs that gave no figures, since the first that did';
ALTER TABLE evaluation ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON evaluation TO signalbox_app
    USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
CREATE POLICY published ON evaluation FOR SELECT TO signalbox_search USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON evaluation TO signalbox_app;
GRANT SELECT ON evaluation TO signalbox_search;

-- The evaluations of all tenants. Like `sweep`, the function takes a worker's pass in place of a tenant's scope.
CREATE FUNCTION evaluations(pass text) RETURNS SETOF evaluation
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only the service reads the evaluations of all tenants' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY SELECT e.* FROM evaluation e ORDER BY e.name;
END $$;
ALTER FUNCTION evaluations OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION evaluations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION evaluations TO signalbox_app;
