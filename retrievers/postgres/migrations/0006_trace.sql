-- How answers came about: one record per answered request, kept until it expires.
--
-- Written after the answer, never in its way. The one who asked is the only one who can read it: there is no
-- policy for the platform, and the roles of the searches and of the SQL source have no right on it.

CREATE TABLE trace (
    tenant text NOT NULL CHECK (tenant <> ''),
    id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    request jsonb NOT NULL,
    record jsonb NOT NULL,
    PRIMARY KEY (tenant, id)
);
COMMENT ON TABLE trace IS 'decision records (agent.trace); what has expired is not shown any more and deleted in batches';
COMMENT ON COLUMN trace.request IS 'what was asked, with the moment it was asked as of, so that it can be asked again';
CREATE INDEX trace_expiry ON trace (tenant, expires_at);

ALTER TABLE trace ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON trace TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
GRANT SELECT, INSERT, DELETE ON trace TO signalbox_app;
