-- Filtered searches score every passage of the filter where 0001 trusted the indexes with part of them.

-- The passages nearest to a vector, by inner product (vectors have length 1).
CREATE OR REPLACE FUNCTION nearest(
    scope text, among integer[], model smallint, question halfvec, wanted jsonpath, amount integer
) RETURNS TABLE (tenant text, collection integer, document_id text, ordinal integer, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
SET hnsw.iterative_scan = 'strict_order'
SET hnsw.max_scan_tuples = 20000
SET hnsw.ef_search = 150
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    who text := verified_tenant(scope);
    size integer := vector_dims(question);
    indexed double precision;
    available bigint;
    counted record;
    found integer := 0;
    visible text := '(c.tenant = $1 OR c.public) AND (c.expires_at IS NULL OR c.expires_at > now())';
    -- The same scope in a form that no other index serves: scanning the primary key of a whole collection
    -- beside the index that finds the candidates would make every search as slow as the collection is large.
    within text := 'c.collection + 0 = ANY ($2) AND (c.tenant || '''' = $1 OR (c.tenant || '''' = ''0'' AND c.public))
                    AND (c.expires_at IS NULL OR c.expires_at > now())';
BEGIN
    SELECT coalesce(sum(k.chunks), 0) INTO available FROM collection k
    WHERE k.tenant IN (who, '0') AND k.number = ANY (among);
    IF wanted IS NOT NULL AND available > 0 THEN
        counted := few_passages(who, among, wanted);
        IF counted.documents <= 2000 THEN
            available := counted.passages;
        END IF;
    END IF;
    SELECT greatest(reltuples, 0) INTO indexed FROM pg_class WHERE oid = to_regclass('chunk_embedding_' || model);
    -- Scoring every passage costs their number; the index costs about 8 per candidate, and it walks
    -- past the passages of others, whose share of the index is the share of what it reads.
    -- Under a filter up to 20,000 are scored all the same (20 ms): the index, which filters what it has found,
    -- would lose one in a hundred of them.
    IF available::double precision * available > 8.0 * amount * greatest(coalesce(indexed, 0), available)
       AND (wanted IS NULL OR available > 20000) THEN
        RETURN QUERY EXECUTE format(
            'SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.embedding::halfvec(%1$s) <#> $3)
             FROM chunk c
             WHERE c.embedder = %2$s AND %3$s %4$s
             ORDER BY c.embedding::halfvec(%1$s) <#> $3 LIMIT %5$s',
            size, model, within, CASE WHEN wanted IS NULL THEN '' ELSE 'AND c.fields @@ $4' END, amount)
        USING who, among, question, wanted;
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found >= least(amount, available) THEN
            RETURN;
        END IF;
    END IF;
    -- Few enough to score all, or the index gave less than there is: the exact ranking. The rows already
    -- returned may come again; the caller keeps the first of each.
    IF wanted IS NULL THEN
        RETURN QUERY EXECUTE format(
            'SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.embedding <#> $3)
             FROM chunk c
             WHERE c.embedder = %s AND c.tenant IN ($1, ''0'') AND c.collection = ANY ($2) AND %s
             ORDER BY c.embedding <#> $3, c.tenant, c.collection, c.document_id, c.ordinal LIMIT %s', model, visible, amount)
        USING who, among, question;
    ELSE
        RETURN QUERY EXECUTE format(
            'SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.embedding <#> $3)
             FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
             WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4 AND c.embedder = %s AND %s
             ORDER BY c.embedding <#> $3, c.tenant, c.collection, c.document_id, c.ordinal LIMIT %s', model, visible, amount)
        USING who, among, question, wanted;
    END IF;
END $$;

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
DECLARE
    who text := verified_tenant(scope);
    counted record;
    found bigint := 0;
    round tsquery;
    visible text := '(c.tenant = $1 OR c.public) AND (c.expires_at IS NULL OR c.expires_at > now())';
    -- As in nearest(): only the index on lexemes may find the candidates.
    within text := 'c.collection + 0 = ANY ($2) AND (c.tenant || '''' = $1 OR (c.tenant || '''' = ''0'' AND c.public))
                    AND (c.expires_at IS NULL OR c.expires_at > now())';
BEGIN
    IF wanted IS NOT NULL THEN
        counted := few_passages(who, among, wanted);
        IF counted.documents <= 2000 AND counted.passages <= 20000 THEN
            -- Who holds a term of the question has a score: no need to look at the lexemes, which cost more.
            RETURN QUERY EXECUTE format(
                'SELECT tenant, collection, document_id, ordinal, score FROM (
                     SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> $3) AS score
                     FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
                     WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4 AND %s %s
                     OFFSET 0) found
                 WHERE score > 0 ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT %s',
                visible, CASE WHEN wider IS NULL THEN 'AND c.lexemes @@ $5' ELSE '' END, amount)
            USING who, among, question, wanted, candidates;
            RETURN;
        END IF;
    END IF;
    FOREACH round IN ARRAY ARRAY[candidates, nullif(wider, candidates)] LOOP
        CONTINUE WHEN round IS NULL OR found >= amount;
        RETURN QUERY EXECUTE format(
            'SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> $3) AS score
             FROM chunk c
             WHERE c.lexemes @@ $5 AND %s %s
             ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT %s',
            within, CASE WHEN wanted IS NULL THEN '' ELSE 'AND c.fields @@ $4' END, amount)
        USING who, among, question, wanted, round;
        GET DIAGNOSTICS found = ROW_COUNT;
    END LOOP;
END $$;
