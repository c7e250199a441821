-- Access inside a tenant: documents may have readers, users and groups; those without are read by all of the tenant.
--
-- A scope is signed for a tenant and the principals that ask ("tenant", then each principal, on lines of their own).
-- "*" sees everything: the operator and ingestion. A scope without principals sees what has no readers.
--
-- Documents of a collection with the same readers are a part of it: a row of `collection` with a number below 0 that
-- counts them, their terms and their values. So whoever sees some parts is told the counts of these, exactly and
-- without looking at a document. Documents and passages keep the collection's own number beside that of their part.

ALTER TABLE collection
    ADD COLUMN part_of integer,
    ADD COLUMN readers text[],
    ADD CONSTRAINT collection_part_check
        CHECK ((part_of IS NULL) = (readers IS NULL) AND (part_of IS NULL) = (number > 0)),
    ADD CONSTRAINT collection_part_fkey FOREIGN KEY (tenant, part_of) REFERENCES collection ON DELETE CASCADE,
    DROP CONSTRAINT collection_tenant_name_key,
    ADD CONSTRAINT collection_name_key UNIQUE NULLS NOT DISTINCT (tenant, part_of, name);
COMMENT ON COLUMN collection.part_of IS 'number of the collection whose documents with these readers it counts; its name is their digest';
COMMENT ON COLUMN collection.readers IS 'users and groups, sorted';

ALTER TABLE document ADD COLUMN part integer;
ALTER TABLE chunk ADD COLUMN part integer;
COMMENT ON COLUMN document.part IS 'number of the part of the collection that it belongs to; null where everybody of the tenant reads it';
COMMENT ON COLUMN chunk.part IS 'as of the document';

-- When somebody last lost sight of a document, and when readers changed at all, on a count of the tenant's own.
CREATE TABLE access (
    tenant text PRIMARY KEY CHECK (tenant <> ''),
    changed bigint NOT NULL,
    narrowed bigint NOT NULL
);
COMMENT ON TABLE access IS 'changes of readers; what was answered before the last that took a document from somebody is shown to nobody but the operator';

-- What was answered is shown to who asks for all of the principals it was answered to.
ALTER TABLE trace ADD COLUMN principals text[] NOT NULL DEFAULT '{}', ADD COLUMN as_of bigint NOT NULL DEFAULT 0;
ALTER TABLE conversation ADD COLUMN principals text[] NOT NULL DEFAULT '{}', ADD COLUMN as_of bigint NOT NULL DEFAULT 0;
ALTER TABLE message ADD COLUMN as_of bigint NOT NULL DEFAULT 0;
ALTER TABLE exchange ADD COLUMN principals text[] NOT NULL DEFAULT '{}', ADD COLUMN as_of bigint NOT NULL DEFAULT 0;
ALTER TABLE dead_letter ADD COLUMN readers text[];
COMMENT ON COLUMN trace.as_of IS 'access.changed when it was asked';
COMMENT ON COLUMN conversation.as_of IS 'of the summary: access.changed when the turns that it tells of were read';

ALTER TABLE api_key
    ADD COLUMN principals text[] NOT NULL DEFAULT '{}',
    ADD COLUMN trusted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN api_key.principals IS 'as whom its holder reads';
COMMENT ON COLUMN api_key.trusted IS 'whether its holder may say as whom a request reads';

-- The signed name of a scope.
CREATE FUNCTION verified_name(scope text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    named text := substr(scope, 66);
    wanted text;
BEGIN
    IF coalesce(scope, '') = '' OR named = '' THEN
        RAISE EXCEPTION 'no tenant is set' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT encode(sha256(key || convert_to(named, 'UTF8') || key), 'hex') INTO wanted FROM secret;
    IF left(scope, 65) IS DISTINCT FROM wanted || ':' THEN
        RAISE EXCEPTION 'the tenant scope is not signed' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN named;
END $$;

-- A worker's pass begins with a line break and names no tenant.
CREATE OR REPLACE FUNCTION verified_tenant(scope text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    named text := verified_name(scope);
BEGIN
    RETURN CASE WHEN left(named, 1) = E'\n' THEN named ELSE split_part(named, E'\n', 1) END;
END $$;

CREATE FUNCTION verified_principals(scope text) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (string_to_array(verified_name(scope), E'\n'))[2:];
END $$;

CREATE FUNCTION readable(readers text[], principals text[]) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN readers IS NULL OR readers && principals OR '*' = ANY (principals);

-- The parts of collections that a scope sees.
CREATE FUNCTION parts(scope text) RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := verified_tenant(scope);
    mine text[] := verified_principals(scope);
BEGIN
    RETURN ARRAY(SELECT k.number FROM collection k
                 WHERE k.tenant = who AND k.part_of IS NOT NULL AND readable(k.readers, mine));
END $$;

-- The collections with parts that the scope does not see, be they empty by now; `wholly`: with documents, and none
-- that it sees in any part.
CREATE FUNCTION concealed(wholly boolean) RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := tenant();
    mine text[] := principals();
BEGIN
    RETURN ARRAY(SELECT k.part_of FROM collection k
                 WHERE k.tenant = who AND k.part_of IS NOT NULL AND (k.documents > 0 OR NOT wholly)
                 GROUP BY k.part_of
                 HAVING NOT CASE WHEN wholly THEN bool_or(readable(k.readers, mine)) ELSE bool_and(readable(k.readers, mine)) END);
END $$;

CREATE FUNCTION principals() RETURNS text[] LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT verified_principals(current_setting('signalbox.scope', true)) $$;
CREATE FUNCTION parts() RETURNS integer[] LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT parts(current_setting('signalbox.scope', true)) $$;

-- How often readers have changed.
CREATE FUNCTION access_changed(scope text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := verified_tenant(scope);
BEGIN
    RETURN coalesce((SELECT a.changed FROM access a WHERE a.tenant = who), 0);
END $$;

-- What was answered before this may show what is to be seen no more; 0 for who sees everything.
CREATE FUNCTION narrowed() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    who text := tenant();
BEGIN
    RETURN CASE WHEN '*' = ANY (principals()) THEN 0
           ELSE coalesce((SELECT a.narrowed FROM access a WHERE a.tenant = who), 0) END;
END $$;

ALTER TABLE access ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON access TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
CREATE POLICY search ON access FOR SELECT TO signalbox_search USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON access TO signalbox_app;
GRANT SELECT ON access TO signalbox_search;

-- Of a collection whose documents it may not read, a scope does not even see the name.
ALTER POLICY own ON collection USING (
    tenant = (SELECT tenant()) AND readable(readers, (SELECT principals()))
    AND (documents > 0 OR part_of IS NOT NULL OR NOT number = ANY ((SELECT concealed(true))::integer[])));
ALTER POLICY own ON document USING (tenant = (SELECT tenant()) AND (part IS NULL OR part = ANY ((SELECT parts())::integer[])));
ALTER POLICY sql_own ON document USING (
    tenant = (SELECT tenant()) AND enabled AND (part IS NULL OR part = ANY ((SELECT parts())::integer[])));
ALTER POLICY own ON chunk USING (tenant = (SELECT tenant()) AND (part IS NULL OR part = ANY ((SELECT parts())::integer[])));
ALTER POLICY platform ON chunk USING (
    tenant = '0' AND public AND part IS NULL AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
ALTER POLICY platform ON document USING (
    tenant = '0' AND public AND part IS NULL AND enabled AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
ALTER POLICY sql_platform ON document USING (
    tenant = '0' AND public AND part IS NULL AND enabled AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['term', 'field_value', 'field_count', 'field_word'] LOOP
        EXECUTE format('ALTER POLICY own ON %I USING (
            tenant = (SELECT tenant()) AND (collection > 0 OR collection = ANY ((SELECT parts())::integer[])))', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['trace', 'exchange'] LOOP
        EXECUTE format('ALTER POLICY own ON %I USING (
            tenant = (SELECT tenant()) AND as_of >= (SELECT narrowed())
            AND (principals <@ (SELECT principals()) OR ''*'' = ANY ((SELECT principals())::text[])))', name);
    END LOOP;
END $$;
ALTER POLICY own ON conversation USING (
    tenant = (SELECT tenant()) AND (principals <@ (SELECT principals()) OR '*' = ANY ((SELECT principals())::text[])));
ALTER POLICY own ON message USING (
    tenant = (SELECT tenant()) AND as_of >= (SELECT narrowed())
    AND EXISTS (SELECT FROM conversation c WHERE c.tenant = message.tenant AND c.id = message.conversation));
ALTER POLICY own ON dead_letter USING (tenant = (SELECT tenant()) AND readable(readers, (SELECT principals())));

-- Documents that satisfy a filter, and their passages; more than 2,000 are not counted.
DROP FUNCTION few_passages;
CREATE FUNCTION few_passages(
    who text, among integer[], wanted jsonpath, seen integer[], OUT documents bigint, OUT passages bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT count(*), coalesce(sum(chunks), 0) FROM (
        SELECT d.chunks FROM document d
        WHERE d.tenant IN (who, '0') AND d.collection = ANY (among) AND (d.tenant = who OR d.public)
          AND (d.part IS NULL OR d.part = ANY (seen)) AND d.fields @@ wanted
        LIMIT 2001) found
$$;

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
    seen integer[] := parts(scope);
    size integer := vector_dims(question);
    indexed double precision;
    available bigint;
    counted record;
    found integer := 0;
    -- The same scope in a form that no other index serves: scanning the primary key of a whole collection
    -- beside the index that finds the candidates would make every search as slow as the collection is large.
    within text := 'c.collection + 0 = ANY ($2) AND (c.tenant || '''' = $1 OR (c.tenant || '''' = ''0'' AND c.public))
                    AND (c.part IS NULL OR c.part = ANY ($5)) AND (c.expires_at IS NULL OR c.expires_at > now())';
BEGIN
    SELECT coalesce(sum(k.chunks), 0) INTO available FROM collection k
    WHERE k.tenant IN (who, '0') AND (k.number = ANY (among) OR (k.part_of = ANY (among) AND k.number = ANY (seen)));
    IF wanted IS NOT NULL AND available > 0 THEN
        counted := few_passages(who, among, wanted, seen);
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
            USING who, among, question, wanted, seen;
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
              AND (c.tenant = who OR c.public) AND (c.part IS NULL OR c.part = ANY (seen))
              AND (c.expires_at IS NULL OR c.expires_at > now())
            ORDER BY distance, c.tenant, c.collection, c.document_id, c.ordinal LIMIT amount) n;
    ELSE
        RETURN QUERY EXECUTE format(
            'SELECT n.tenant, n.collection, n.document_id, n.ordinal, -n.distance FROM (
                 SELECT c.tenant, c.collection, c.document_id, c.ordinal, c.embedding <#> $3 AS distance
                 FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
                 WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4 AND c.embedder = %s
                   AND (c.tenant = $1 OR c.public) AND (c.part IS NULL OR c.part = ANY ($5))
                   AND (c.expires_at IS NULL OR c.expires_at > now())
                 ORDER BY distance, c.tenant, c.collection, c.document_id, c.ordinal LIMIT %s) n', model, amount)
        USING who, among, question, wanted, seen;
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
    seen integer[] := parts(scope);
    counted record;
    found bigint := 0;
    round tsquery;
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
    FOREACH round IN ARRAY ARRAY[candidates, nullif(wider, candidates)] LOOP
        CONTINUE WHEN round IS NULL OR found >= amount;
        -- Not EXECUTE: the plan is kept from call to call. As in nearest(), the scope is in a form that no index
        -- serves: only the index on lexemes may find the candidates.
        RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> question) AS score
        FROM chunk c
        WHERE c.lexemes @@ round AND c.collection + 0 = ANY (among)
          AND (c.tenant || '' = who OR (c.tenant || '' = '0' AND c.public))
          AND (c.part IS NULL OR c.part = ANY (seen))
          AND (c.expires_at IS NULL OR c.expires_at > now()) AND (wanted IS NULL OR c.fields @@ wanted)
        ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT amount;
        GET DIAGNOSTICS found = ROW_COUNT;
    END LOOP;
END $$;

-- Passages by identity, with what is shown of their documents.
CREATE OR REPLACE FUNCTION passages(scope text, tenants text[], among integer[], documents text[], ordinals integer[])
RETURNS TABLE (tenant text, collection integer, document_id text, ordinal integer, title text, body text, url text,
               heading text, start_character integer, end_character integer, metadata jsonb, gap text, fields jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    seen integer[] := parts(scope);
BEGIN
    -- In this language the plan of the statement is kept from call to call.
    RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, d.title, c.body, d.url, c.heading, c.start_character,
           c.end_character, d.metadata, c.gap, d.fields
    FROM unnest(tenants, among, documents, ordinals) AS wanted (tenant, collection, document_id, ordinal)
    JOIN chunk c USING (tenant, collection, document_id, ordinal)
    JOIN document d ON d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id
    WHERE (c.tenant = who OR (c.tenant = '0' AND c.public)) AND (c.part IS NULL OR c.part = ANY (seen))
      AND (c.expires_at IS NULL OR c.expires_at > now());
END $$;

-- How often terms occur in what the scope sees.
CREATE OR REPLACE FUNCTION term_counts(scope text, tenants text[], among integer[], terms text[])
RETURNS TABLE (collection integer, term text, chunks integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    seen integer[] := parts(scope);
BEGIN
    -- The collections that row security would show.
    RETURN QUERY SELECT one.number, t.term, sum(t.chunks)::integer
    FROM unnest(tenants, among) AS one (tenant, number)
    JOIN collection k ON k.tenant = one.tenant
                     AND (k.number = one.number OR (k.part_of = one.number AND k.number = ANY (seen)))
    JOIN term t ON t.tenant = k.tenant AND t.collection = k.number AND t.term = ANY (terms)
    WHERE k.tenant = who OR (k.tenant = '0' AND k.public_documents > 0)
    GROUP BY one.number, t.term;
END $$;

-- Whose key this is, as whom it reads, and why it is valid no more; no row when there is none.
DROP FUNCTION verified_key;
CREATE FUNCTION verified_key(wanted text, presented bytea)
RETURNS TABLE (tenant text, ended text, principals text[], trusted boolean)
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
    RETURN QUERY
        SELECT k.tenant, CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' END,
               k.principals, k.trusted
        FROM api_key k WHERE k.id = wanted AND sha256(k.digest || salt) = sha256(presented || salt);
END $$;
GRANT CREATE ON SCHEMA signalbox TO signalbox_keys;
ALTER FUNCTION verified_key OWNER TO signalbox_keys;
REVOKE CREATE ON SCHEMA signalbox FROM signalbox_keys;

ALTER FUNCTION few_passages OWNER TO signalbox_search;
ALTER FUNCTION parts(text) OWNER TO signalbox_search;
ALTER FUNCTION concealed OWNER TO signalbox_search;
ALTER FUNCTION access_changed OWNER TO signalbox_search;
ALTER FUNCTION narrowed OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION verified_name, verified_principals, readable, parts(text), parts(), concealed, principals,
    access_changed, narrowed, few_passages, verified_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION verified_principals, readable, parts(text), principals TO signalbox_app, signalbox_search, signalbox_sql;
GRANT EXECUTE ON FUNCTION parts() TO signalbox_app, signalbox_sql;
GRANT EXECUTE ON FUNCTION concealed, access_changed, narrowed, verified_key TO signalbox_app;
