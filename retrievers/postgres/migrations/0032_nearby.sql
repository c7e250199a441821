-- Searches read less: full text no part of a passage's readers where no document has readers of its own, and vectors the
-- passages of a collection in the order in which they are stored.
--
-- On 5,700 passages full text takes a fifth less processor time, and vectors a tenth.

-- Equal keys stand in the order of their rows, so that a scan reads each page once; by the primary key, it returns to a
-- page for every document on it. 12 bytes per passage.
CREATE INDEX chunk_collection ON chunk (tenant, collection);

-- The passages with the best BM25 score among those that match the candidate query. When a filter or an
-- expiry leaves too few of them, all that match the wider query, which names every term of the question,
-- are scored; without a wider query the candidate query must match (a phrase).
CREATE OR REPLACE FUNCTION matching(
    scope text, among integer[], candidates tsquery, wider tsquery, question sparsevec, wanted jsonpath, amount integer
) RETURNS TABLE (tenant text, collection integer, document_id text, ordinal integer, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    seen integer[] := parts(scope);
    counted record;
    found bigint := 0;
    round tsquery;
    apart boolean;
BEGIN
    IF wanted IS NOT NULL THEN
        counted := few_passages(who, among, wanted, seen);
        IF counted.documents <= 2000 AND counted.passages <= 20000 THEN
            -- Who holds a term of the question has a score: no need to look at the lexemes, which cost more.
            RETURN QUERY EXECUTE format(
                'SELECT tenant, collection, document_id, ordinal, score FROM (
                     SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> $3) AS score
                     FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
                     WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4
                       AND (c.tenant = $1 OR c.public) AND (c.part IS NULL OR c.part = ANY ($6))
                       AND (c.expires_at IS NULL OR c.expires_at > now()) %s
                     OFFSET 0) found
                 WHERE score > 0 ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT %s',
                CASE WHEN wider IS NULL THEN 'AND c.lexemes @@ $5' ELSE '' END, amount)
            USING who, among, question, wanted, candidates, seen;
            RETURN;
        END IF;
    END IF;
    apart := wanted IS NOT NULL OR EXISTS (
        SELECT FROM chunk c WHERE c.tenant IN (who, '0') AND c.collection = ANY (among) AND c.part IS NOT NULL);
    FOREACH round IN ARRAY ARRAY[candidates, nullif(wider, candidates)] LOOP
        CONTINUE WHEN round IS NULL OR found >= amount;
        -- Not EXECUTE: the plan is kept from call to call. As in nearest(), the scope is in a form that no index
        -- serves, so that only the index on lexemes may find the candidates, and the condition on the part, which
        -- stands behind all else of a row, is left out where it is not needed.
        IF NOT apart THEN
            RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> question) AS score
            FROM chunk c
            WHERE c.lexemes @@ round AND c.collection + 0 = ANY (among)
              AND (c.tenant || '' = who OR (c.tenant || '' = '0' AND c.public))
              AND (c.expires_at IS NULL OR c.expires_at > now())
            ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT amount;
        ELSE
            RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> question) AS score
            FROM chunk c
            WHERE c.lexemes @@ round AND c.collection + 0 = ANY (among)
              AND (c.tenant || '' = who OR (c.tenant || '' = '0' AND c.public))
              AND (c.part IS NULL OR c.part = ANY (seen))
              AND (c.expires_at IS NULL OR c.expires_at > now()) AND (wanted IS NULL OR c.fields @@ wanted)
            ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT amount;
        END IF;
        GET DIAGNOSTICS found = ROW_COUNT;
    END LOOP;
END $$;
