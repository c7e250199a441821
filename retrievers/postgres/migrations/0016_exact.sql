-- The hits of a search follow the documents alone, where 0003 let the state of the database decide.
--
-- An index on vectors gives other neighbours after it was built again, and whether it was used depended on the
-- statistics of all that the database holds. Of up to 10,000 passages in scope every one is scored; under a filter of up
-- to 20,000 in scope, or 20,000 that up to 2,000 documents satisfying it have.

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
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    size integer := vector_dims(question);
    indexed double precision;
    available bigint;
    counted record;
    found integer := 0;
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
    -- retrievers.vector.MOST_SCORED; a filter that leaves many documents may leave too few passages to the index.
    IF available > (CASE WHEN wanted IS NULL THEN 10000 ELSE 20000 END) THEN
        SELECT greatest(reltuples, 0) INTO indexed FROM pg_class WHERE oid = to_regclass('chunk_embedding_' || model);
        -- Scoring every passage costs their number; the index costs about 8 per candidate, and it walks
        -- past the passages of others, whose share of the index is the share of what it reads.
        IF available::double precision * available > 8.0 * amount * greatest(coalesce(indexed, 0), available) THEN
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
    END IF;
    -- Few enough to score all, or the index gave less than there is: the exact ranking. The rows already
    -- returned may come again; the caller keeps the first of each.
    IF wanted IS NULL THEN
        -- Not EXECUTE: the plan is kept from call to call. In a subquery each product is made once.
        RETURN QUERY SELECT n.tenant, n.collection, n.document_id, n.ordinal, -n.distance FROM (
            SELECT c.tenant, c.collection, c.document_id, c.ordinal, c.embedding <#> question AS distance
            FROM chunk c
            WHERE c.embedder = model AND c.tenant IN (who, '0') AND c.collection = ANY (among)
              AND (c.tenant = who OR c.public) AND (c.expires_at IS NULL OR c.expires_at > now())
            ORDER BY distance, c.tenant, c.collection, c.document_id, c.ordinal LIMIT amount) n;
    ELSE
        RETURN QUERY EXECUTE format(
            'SELECT n.tenant, n.collection, n.document_id, n.ordinal, -n.distance FROM (
                 SELECT c.tenant, c.collection, c.document_id, c.ordinal, c.embedding <#> $3 AS distance
                 FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
                 WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4 AND c.embedder = %s
                   AND (c.tenant = $1 OR c.public) AND (c.expires_at IS NULL OR c.expires_at > now())
                 ORDER BY distance, c.tenant, c.collection, c.document_id, c.ordinal LIMIT %s) n', model, amount)
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
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    counted record;
    found bigint := 0;
    round tsquery;
BEGIN
    IF wanted IS NOT NULL THEN
        counted := few_passages(who, among, wanted);
        IF counted.documents <= 2000 AND counted.passages <= 20000 THEN
            -- Who holds a term of the question has a score: no need to look at the lexemes, which cost more.
            RETURN QUERY EXECUTE format(
                'SELECT tenant, collection, document_id, ordinal, score FROM (
                     SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> $3) AS score
                     FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
                     WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4
                       AND (c.tenant = $1 OR c.public) AND (c.expires_at IS NULL OR c.expires_at > now()) %s
                     OFFSET 0) found
                 WHERE score > 0 ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT %s',
                CASE WHEN wider IS NULL THEN 'AND c.lexemes @@ $5' ELSE '' END, amount)
            USING who, among, question, wanted, candidates;
            RETURN;
        END IF;
    END IF;
    FOREACH round IN ARRAY ARRAY[candidates, nullif(wider, candidates)] LOOP
        CONTINUE WHEN round IS NULL OR found >= amount;
        -- Not EXECUTE: the plan is kept from call to call. As in nearest(), the scope is in a form that no index
        -- serves: only the index on lexemes may find the candidates.
        RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> question) AS score
        FROM chunk c
        WHERE c.lexemes @@ round AND c.collection + 0 = ANY (among)
          AND (c.tenant || '' = who OR (c.tenant || '' = '0' AND c.public))
          AND (c.expires_at IS NULL OR c.expires_at > now()) AND (wanted IS NULL OR c.fields @@ wanted)
        ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT amount;
        GET DIAGNOSTICS found = ROW_COUNT;
    END LOOP;
END $$;
