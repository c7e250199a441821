-- The BM25 vectors of a collection are recomputed for another mean length in short transactions, between which others
-- write to the collection.
ALTER TABLE collection ADD COLUMN weighed_id text COLLATE "C", ADD COLUMN weighed_ordinal integer;
COMMENT ON COLUMN collection.mean_length IS 'BM25''s average length that passages are weighed with; 0 before the first';
COMMENT ON COLUMN collection.weighed_id IS 'with weighed_ordinal: the last passage whose BM25 vector was recomputed for mean_length; those behind it may have an earlier one; null if there are none';

CREATE INDEX collection_weighed ON collection (tenant, number) WHERE weighed_id IS NOT NULL;

-- The collections whose BM25 vectors are being recomputed.
CREATE FUNCTION reweighed_collections(pass text, most integer) RETURNS TABLE (tenant text, collection integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what is being recomputed' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY SELECT k.tenant, k.number FROM collection k
                 WHERE k.weighed_id IS NOT NULL AND k.shadow_of IS NULL LIMIT most;
END $$;
ALTER FUNCTION reweighed_collections OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION reweighed_collections FROM PUBLIC;
GRANT EXECUTE ON FUNCTION reweighed_collections TO signalbox_app;
