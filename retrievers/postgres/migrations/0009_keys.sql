-- API keys, and documents that are switched off.
--
-- A key fixes the tenant, so whose it is must be told before there is one: by a function whose owner, a role of its
-- own, reads the keys of all tenants and nothing else.

CREATE TABLE api_key (
    tenant text NOT NULL CHECK (tenant <> ''),
    id text NOT NULL COLLATE "C" CHECK (id <> ''),
    name text NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    PRIMARY KEY (tenant, id)
);
COMMENT ON COLUMN api_key.digest IS 'SHA-256 of the whole key, which holds 256 random bits; the key itself is stored nowhere';
COMMENT ON COLUMN api_key.last_used_at IS 'to the minute';
CREATE INDEX api_key_id ON api_key (id);

ALTER TABLE api_key ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON api_key TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
CREATE POLICY verification ON api_key TO signalbox_keys USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON api_key TO signalbox_app;
GRANT SELECT, UPDATE (last_used_at) ON api_key TO signalbox_keys;
GRANT USAGE ON SCHEMA signalbox TO signalbox_keys;

-- Whose key this is, and why it is valid no more; no row when there is none.
CREATE FUNCTION verified_key(wanted text, presented bytea) RETURNS TABLE (tenant text, ended text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    -- What is compared byte by byte is hashed with this first, so that the time it takes tells nothing.
    salt bytea := uuid_send(gen_random_uuid());
BEGIN
    -- Whoever revokes the key at this moment is not waited for.
    UPDATE api_key used SET last_used_at = now() FROM (
        SELECT k.tenant, k.id FROM api_key k
        WHERE k.id = wanted AND sha256(k.digest || salt) = sha256(presented || salt)
          AND k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true)
          AND coalesce(k.last_used_at < now() - interval '1 minute', true)
        FOR UPDATE SKIP LOCKED) key
    WHERE used.tenant = key.tenant AND used.id = key.id;
    RETURN QUERY SELECT k.tenant, CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' END
    FROM api_key k WHERE k.id = wanted AND sha256(k.digest || salt) = sha256(presented || salt);
END $$;
GRANT CREATE ON SCHEMA signalbox TO signalbox_keys;
ALTER FUNCTION verified_key OWNER TO signalbox_keys;
REVOKE CREATE ON SCHEMA signalbox FROM signalbox_keys;
REVOKE ALL ON FUNCTION verified_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION verified_key TO signalbox_app;

-- A document that is disabled is a row here and nothing else: no passage, no term, no field value and no count is
-- made of it, so no search or catalogue has to leave it out. Whatever reads documents themselves does so here.
ALTER TABLE document ADD COLUMN enabled boolean NOT NULL DEFAULT true;
ALTER POLICY platform ON document
    USING (tenant = '0' AND public AND enabled AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
ALTER POLICY sql_own ON document USING (tenant = (SELECT tenant()) AND enabled);
ALTER POLICY sql_platform ON document
    USING (tenant = '0' AND public AND enabled AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
GRANT SELECT (enabled) ON document TO signalbox_sql;
