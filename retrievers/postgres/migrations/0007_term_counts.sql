-- How often terms occur, in one statement that carries its scope, as the searches do: every question asks.

CREATE FUNCTION term_counts(scope text, tenants text[], among integer[], terms text[])
RETURNS TABLE (collection integer, term text, chunks integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
BEGIN
    -- The collections that row security would show.
    RETURN QUERY SELECT t.collection, t.term, t.chunks
    FROM unnest(tenants, among) AS one (tenant, number)
    JOIN collection k USING (tenant, number)
    JOIN term t ON t.tenant = k.tenant AND t.collection = k.number AND t.term = ANY (terms)
    WHERE k.tenant = who OR (k.tenant = '0' AND k.public_documents > 0);
END $$;
ALTER FUNCTION term_counts OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION term_counts FROM PUBLIC;
GRANT EXECUTE ON FUNCTION term_counts TO signalbox_app;
GRANT SELECT ON term TO signalbox_search;
