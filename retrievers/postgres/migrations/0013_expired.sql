-- Documents that have expired count nowhere any more: they are kept as those are that were disabled.
--
-- The searches leave them out by the clock; counts, words and values of fields are taken back by whoever settles the
-- collection (retrievers.ingest.store). The function tells a worker where there is something to settle.
CREATE INDEX document_expiry ON document (expires_at) WHERE enabled AND expires_at IS NOT NULL;

CREATE FUNCTION expired_documents(pass text, most integer) RETURNS TABLE (tenant text, collection integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what has expired' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
        SELECT DISTINCT old.tenant, old.collection
        FROM (SELECT d.tenant, d.collection FROM document d
              WHERE d.enabled AND d.expires_at <= now() ORDER BY d.expires_at LIMIT most) old;
END $$;
ALTER FUNCTION expired_documents OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION expired_documents FROM PUBLIC;
GRANT EXECUTE ON FUNCTION expired_documents TO signalbox_app;
