-- Collections, documents and passages of many tenants, and the searches over them.
--
-- Run by the owner with search_path = signalbox, <schema of pgvector>, pg_temp; every function keeps
-- that path. Three roles, none of which owns anything it could drop:
--   signalbox_app     what the service runs as: bound by the row policies below
--   signalbox_search  owner of the search functions alone: the row policies do not bind it, because
--                     under a policy PostgreSQL cannot use an index for @@ and <#>, which are not leakproof;
--                     each function takes the signed tenant and puts it into its own WHERE
--   the owner         runs migrations and is asked for the secret when a service starts

CREATE TABLE secret (
    key bytea NOT NULL CHECK (length(key) = 32),
    one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO secret (key) VALUES (sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea));

-- The tenant a signed scope names: "<hex of sha256(secret, tenant, secret)>:<tenant>". A plain setting
-- would do, were it not that set_config() changes it in the middle of a statement; a forged one has no
-- valid signature, and only the owner can read the secret.
CREATE FUNCTION verified_tenant(scope text) RETURNS text
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

CREATE FUNCTION tenant() RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$ SELECT verified_tenant(current_setting('signalbox.scope', true)) $$;

CREATE TABLE embedder (
    number smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    dimension integer NOT NULL CHECK (dimension BETWEEN 1 AND 4000)
);

CREATE SEQUENCE collection_number AS integer;

CREATE TABLE collection (
    tenant text NOT NULL CHECK (tenant <> ''),
    number integer NOT NULL DEFAULT nextval('collection_number'),
    name text NOT NULL CHECK (name <> ''),
    embedder smallint REFERENCES embedder,
    analysis integer NOT NULL,
    fields jsonb NOT NULL DEFAULT '{}',
    languages jsonb NOT NULL DEFAULT '{}',
    documents bigint NOT NULL DEFAULT 0,
    public_documents bigint NOT NULL DEFAULT 0,
    chunks bigint NOT NULL DEFAULT 0,
    words bigint NOT NULL DEFAULT 0,
    mean_length double precision NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, number),
    UNIQUE (tenant, name)
);
COMMENT ON COLUMN collection.fields IS 'metadata fields: name to {"type", "item", "separator", "declared", "description"}';
COMMENT ON COLUMN collection.words IS 'sum of the passages'' lengths';
COMMENT ON COLUMN collection.mean_length IS 'BM25''s average length that the stored vectors were made with; 0 before the first';
COMMENT ON COLUMN collection.version IS 'raised by every change: what was read of an older version is stale';

CREATE TABLE document (
    tenant text NOT NULL,
    collection integer NOT NULL,
    id text NOT NULL COLLATE "C" CHECK (id <> ''),
    title text NOT NULL,
    url text,
    body text NOT NULL,
    metadata jsonb NOT NULL,
    fields jsonb NOT NULL,
    important text[] NOT NULL DEFAULT '{}',
    questions text[] NOT NULL DEFAULT '{}',
    language text NOT NULL,
    digest bytea NOT NULL,
    chunks integer NOT NULL,
    words bigint NOT NULL,
    public boolean NOT NULL DEFAULT false,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, collection, id),
    FOREIGN KEY (tenant, collection) REFERENCES collection ON DELETE CASCADE
);
COMMENT ON COLUMN document.fields IS 'metadata in the normal form that filters compare (retrievers.core.fields)';
COMMENT ON COLUMN document.digest IS 'of everything that was given: an equal one means nothing to do';
-- Filters read many documents and need no text: keep it out of the row.
ALTER TABLE document ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN metadata SET STORAGE EXTENDED;
ALTER TABLE document SET (toast_tuple_target = 256);
CREATE INDEX document_fields ON document USING gin (fields jsonb_path_ops);

CREATE TABLE chunk (
    tenant text NOT NULL,
    collection integer NOT NULL,
    document_id text NOT NULL COLLATE "C",
    ordinal integer NOT NULL,
    embedder smallint,
    public boolean NOT NULL,
    expires_at timestamptz,
    start_character integer NOT NULL,
    end_character integer NOT NULL,
    length integer NOT NULL,
    embedding halfvec,
    bm25 sparsevec(1000000000) NOT NULL,
    fields jsonb NOT NULL,
    heading text NOT NULL,
    digest bytea NOT NULL,
    lexemes tsvector NOT NULL,
    body text NOT NULL,
    gap text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, collection, document_id, ordinal),
    FOREIGN KEY (tenant, collection, document_id) REFERENCES document ON DELETE CASCADE
);
COMMENT ON COLUMN chunk.lexemes IS 'terms as "<collection>:<term>", so that one index keeps collections apart; labels A title, B important, C questions, D text';
COMMENT ON COLUMN chunk.bm25 IS 'the document side of BM25; its inner product with the question''s idf is the score';
COMMENT ON COLUMN chunk.gap IS 'the white space between this passage and the next one of the document';
COMMENT ON COLUMN chunk.digest IS 'of the text that was embedded: a passage that comes again keeps its vector';
-- What a search reads of every candidate stays in the row; the rest only of the few that are shown.
ALTER TABLE chunk
    ALTER COLUMN embedding SET STORAGE MAIN, ALTER COLUMN bm25 SET STORAGE MAIN, ALTER COLUMN fields SET STORAGE MAIN,
    ALTER COLUMN lexemes SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL;
-- Above this size lexemes and text move out; below it nothing is compressed, which would cost every search.
ALTER TABLE chunk SET (toast_tuple_target = 2800);
CREATE INDEX chunk_lexemes ON chunk USING gin (lexemes) WITH (fastupdate = off);

CREATE TABLE term (
    tenant text NOT NULL,
    collection integer NOT NULL,
    term text NOT NULL COLLATE "C",
    chunks integer NOT NULL,
    PRIMARY KEY (tenant, collection, term),
    FOREIGN KEY (tenant, collection) REFERENCES collection ON DELETE CASCADE
) WITH (fillfactor = 70);
COMMENT ON TABLE term IS 'in how many passages of a collection each term occurs';

-- The policies. One rule for reading and one for writing; the platform tenant "0" may publish to all.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['collection', 'document', 'chunk', 'term'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
        EXECUTE format('CREATE POLICY search ON %I FOR SELECT TO signalbox_search USING (true)', name);
    END LOOP;
END $$;
CREATE POLICY platform ON document FOR SELECT TO signalbox_app
    USING (tenant = '0' AND public AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
CREATE POLICY platform ON chunk FOR SELECT TO signalbox_app
    USING (tenant = '0' AND public AND (expires_at IS NULL OR expires_at > now()) AND (SELECT tenant()) <> '');
CREATE POLICY platform ON collection FOR SELECT TO signalbox_app
    USING (tenant = '0' AND public_documents > 0 AND (SELECT tenant()) <> '');
CREATE POLICY platform ON term FOR SELECT TO signalbox_app
    USING (tenant = '0' AND (SELECT tenant()) <> ''
           AND EXISTS (SELECT FROM collection c WHERE c.tenant = '0' AND c.number = term.collection));

-- How many passages a filter leaves, counted up to a bound: below it every one of them is scored.
CREATE FUNCTION few_passages(who text, among integer[], wanted jsonpath, OUT documents bigint, OUT passages bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT count(*), coalesce(sum(chunks), 0) FROM (
        SELECT d.chunks FROM document d
        WHERE d.tenant IN (who, '0') AND d.collection = ANY (among) AND (d.tenant = who OR d.public) AND d.fields @@ wanted
        LIMIT 2001) found
$$;

-- The passages nearest to a vector, by inner product (vectors have length 1).
CREATE FUNCTION nearest(
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
    -- Under a filter up to 5,000 are scored all the same: the index, which filters what it has found, would
    -- lose one in a hundred of them.
    IF available::double precision * available > 8.0 * amount * greatest(coalesce(indexed, 0), available)
       AND (wanted IS NULL OR available > 5000) THEN
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
-- expiry leaves too few of them, all that match the wider query are scored.
CREATE FUNCTION matching(
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
        IF counted.documents <= 2000 AND counted.passages <= 5000 THEN
            RETURN QUERY EXECUTE format(
                'SELECT tenant, collection, document_id, ordinal, score FROM (
                     SELECT c.tenant, c.collection, c.document_id, c.ordinal, -(c.bm25 <#> $3) AS score
                     FROM document d JOIN chunk c ON c.tenant = d.tenant AND c.collection = d.collection AND c.document_id = d.id
                     WHERE d.tenant IN ($1, ''0'') AND d.collection = ANY ($2) AND d.fields @@ $4 AND c.lexemes @@ $5 AND %s
                     OFFSET 0) found
                 WHERE score > 0 ORDER BY score DESC, tenant, collection, document_id, ordinal LIMIT %s', visible, amount)
            USING who, among, question, wanted, coalesce(wider, candidates);
            RETURN;
        END IF;
    END IF;
    FOREACH round IN ARRAY ARRAY[candidates, wider] LOOP
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

-- Passages by identity, with what is shown of their documents.
CREATE FUNCTION passages(scope text, tenants text[], among integer[], documents text[], ordinals integer[])
RETURNS TABLE (tenant text, collection integer, document_id text, ordinal integer, title text, body text, url text,
               heading text, start_character integer, end_character integer, metadata jsonb, gap text, fields jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
BEGIN
    -- In this language the plan of the statement is kept from call to call.
    RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, d.title, c.body, d.url, c.heading, c.start_character,
           c.end_character, d.metadata, c.gap, d.fields
    FROM unnest(tenants, among, documents, ordinals) AS wanted (tenant, collection, document_id, ordinal)
    JOIN chunk c USING (tenant, collection, document_id, ordinal)
    JOIN document d ON d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id
    WHERE (c.tenant = who OR (c.tenant = '0' AND c.public)) AND (c.expires_at IS NULL OR c.expires_at > now());
END $$;

-- An embedder gets a number and an index of its own on first use: vectors of two models never meet.
CREATE FUNCTION register_embedder(model text, size integer) RETURNS smallint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found embedder;
BEGIN
    LOCK TABLE embedder IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO found FROM embedder WHERE name = model;
    IF found.number IS NULL THEN
        INSERT INTO embedder (name, dimension) VALUES (model, size) RETURNING * INTO found;
        -- Measured on 16,600 passages: 98 % of the true top 100 with these, 95 % with pgvector's defaults.
        EXECUTE format('CREATE INDEX chunk_embedding_%s ON chunk USING hnsw ((embedding::halfvec(%s)) halfvec_ip_ops)
                        WITH (m = 24, ef_construction = 128) WHERE embedder = %s',
                       found.number, found.dimension, found.number);
    ELSIF found.dimension <> size THEN
        RAISE EXCEPTION 'the embedder % had vectors of length % and now has %', model, found.dimension, size
            USING ERRCODE = 'data_exception';
    END IF;
    RETURN found.number;
END $$;

-- Fresh statistics after much was written; only an owner may take them.
CREATE FUNCTION refresh_statistics() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN ANALYZE collection, document, chunk, term; END $$;

ALTER FUNCTION nearest OWNER TO signalbox_search;
ALTER FUNCTION matching OWNER TO signalbox_search;
ALTER FUNCTION few_passages OWNER TO signalbox_search;
ALTER FUNCTION passages OWNER TO signalbox_search;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA signalbox FROM PUBLIC;
GRANT USAGE ON SCHEMA signalbox TO signalbox_app, signalbox_search;
GRANT SELECT, INSERT, UPDATE, DELETE ON collection, document, chunk, term TO signalbox_app;
GRANT SELECT ON embedder TO signalbox_app;
GRANT USAGE ON SEQUENCE collection_number TO signalbox_app;
GRANT SELECT ON collection, document, chunk TO signalbox_search;
GRANT EXECUTE ON FUNCTION verified_tenant, tenant TO signalbox_app, signalbox_search;
GRANT EXECUTE ON FUNCTION nearest, matching, passages, register_embedder, refresh_statistics TO signalbox_app;
