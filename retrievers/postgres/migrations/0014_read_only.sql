-- A key is verified while the database is read-only, too: only when it was used last cannot be noted then.
CREATE OR REPLACE FUNCTION verified_key(wanted text, presented bytea) RETURNS TABLE (tenant text, ended text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    -- What is compared byte by byte is hashed with this first, so that the time it takes tells nothing.
    salt bytea := uuid_send(gen_random_uuid());
BEGIN
    IF NOT current_setting('transaction_read_only')::boolean THEN
        -- Whoever revokes the key at this moment is not waited for.
        UPDATE api_key used SET last_used_at = now() FROM (
            SELECT k.tenant, k.id FROM api_key k
            WHERE k.id = wanted AND sha256(k.digest || salt) = sha256(presented || salt)
              AND k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true)
              AND coalesce(k.last_used_at < now() - interval '1 minute', true)
            FOR UPDATE SKIP LOCKED) key
        WHERE used.tenant = key.tenant AND used.id = key.id;
    END IF;
    RETURN QUERY SELECT k.tenant, CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' END
    FROM api_key k WHERE k.id = wanted AND sha256(k.digest || salt) = sha256(presented || salt);
END $$;
