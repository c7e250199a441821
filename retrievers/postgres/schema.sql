CREATE SCHEMA signalbox;

CREATE FUNCTION signalbox.access_changed(scope text) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := verified_tenant(scope);
BEGIN
    RETURN coalesce((SELECT a.changed FROM access a WHERE a.tenant = who), 0);
END $$;

CREATE FUNCTION signalbox.concealed(wholly boolean) RETURNS integer[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := tenant();
    mine text[] := principals();
BEGIN
    RETURN ARRAY(SELECT k.part_of FROM collection k
                 WHERE k.tenant = who AND k.part_of IS NOT NULL
                 GROUP BY k.part_of
                 HAVING NOT CASE WHEN NOT wholly THEN bool_and(readable(k.readers, mine))
                                 ELSE '*' = ANY (mine) OR bool_or(k.documents > 0 AND readable(k.readers, mine)) END);
END $$;

CREATE FUNCTION signalbox.day_end(day date, zone text) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    RETURN (day + 1)::timestamp AT TIME ZONE zone;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN (day + 1)::timestamp AT TIME ZONE 'UTC';
END $$;

CREATE FUNCTION signalbox.erased(asker text, conversation text, principals text[], asked_at timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $_$
    SELECT (asker IS NOT NULL OR conversation IS NOT NULL) AND EXISTS (
        SELECT FROM erasure e
        WHERE e.tenant = tenant() AND e.at >= asked_at AND erases(e.principals, $3)
          AND e.subject IN (erasure_subject('user', asker), erasure_subject('conversation', conversation)))
$_$;

CREATE FUNCTION signalbox.erases(own text[], principals text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (('*'::text = ANY (own)) OR ((principals <@ own) AND ((cardinality(principals) > 0) OR (cardinality(own) = 0))));

CREATE FUNCTION signalbox.erasure_subject(kind text, name text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN sha256(convert_to(((kind || '
'::text) || name), 'UTF8'::name));

CREATE TABLE signalbox.evaluation (
    tenant text NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    dataset text NOT NULL,
    collections text[] NOT NULL,
    measures json NOT NULL,
    answered integer NOT NULL,
    failed integer NOT NULL,
    every_s double precision,
    measured_at timestamp with time zone DEFAULT now() NOT NULL,
    failures bigint DEFAULT 0 NOT NULL,
    CONSTRAINT evaluation_name_check CHECK ((name <> ''::text)),
    CONSTRAINT evaluation_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.evaluation FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.evaluation.name IS 'chosen by the operator; a label of the metrics';

COMMENT ON COLUMN signalbox.evaluation.measures IS 'averages over the questions by measure, in the order in which they are shown';

COMMENT ON COLUMN signalbox.evaluation.failed IS 'questions without an answer, which count as missed';

COMMENT ON COLUMN signalbox.evaluation.every_s IS 'time between two runs; null if nothing repeats them';

COMMENT ON COLUMN signalbox.evaluation.failures IS 'runs that gave no figures, since the first that did';

CREATE FUNCTION signalbox.evaluations(pass text) RETURNS SETOF signalbox.evaluation
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only the service reads the evaluations of all tenants' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY SELECT e.* FROM evaluation e ORDER BY e.name;
END $$;

CREATE FUNCTION signalbox.expired_documents(pass text, most integer) RETURNS TABLE(tenant text, collection integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what has expired' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
        SELECT DISTINCT old.tenant, old.collection
        FROM (SELECT d.tenant, d.collection FROM document d
              JOIN collection k ON k.tenant = d.tenant AND k.number = d.collection AND k.shadow_of IS NULL
              WHERE d.enabled AND d.expires_at <= now() ORDER BY d.expires_at LIMIT most) old;
END $$;

CREATE FUNCTION signalbox.few_passages(who text, among integer[], wanted jsonpath, seen integer[], OUT documents bigint, OUT passages bigint) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
    SELECT count(*), coalesce(sum(chunks), 0) FROM (
        SELECT d.chunks FROM document d
        WHERE d.tenant IN (who, '0') AND d.collection = ANY (among) AND (d.tenant = who OR d.public)
          AND (d.part IS NULL OR d.part = ANY (seen)) AND d.fields @@ wanted
        LIMIT 2001) found
$$;

CREATE FUNCTION signalbox.matching(scope text, among integer[], candidates tsquery, wider tsquery, question public.sparsevec, wanted jsonpath, amount integer) RETURNS TABLE(tenant text, collection integer, document_id text, ordinal integer, score double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $_$
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
END $_$;

CREATE FUNCTION signalbox.move_feedback(scope text, from_number integer, to_number integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := verified_tenant(scope);
BEGIN
    IF EXISTS (SELECT FROM collection k WHERE k.tenant = who AND k.number = from_number AND k.shadow_of = to_number) THEN
        UPDATE feedback_document SET collection = to_number WHERE collection = from_number AND (who = '0' OR tenant = who);
    END IF;
END $$;

CREATE FUNCTION signalbox.narrowed() RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := tenant();
BEGIN
    RETURN CASE WHEN '*' = ANY (principals()) THEN 0
           ELSE coalesce((SELECT a.narrowed FROM access a WHERE a.tenant = who), 0) END;
END $$;

CREATE FUNCTION signalbox.nearest(scope text, among integer[], model smallint, question public.halfvec, wanted jsonpath, amount integer) RETURNS TABLE(tenant text, collection integer, document_id text, ordinal integer, score double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    SET "hnsw.iterative_scan" TO 'strict_order'
    SET "hnsw.max_scan_tuples" TO '20000'
    SET "hnsw.ef_search" TO '150'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    seen integer[] := parts(scope);
    size integer := vector_dims(question);
    indexed double precision;
    available bigint;
    counted record;
    found integer := 0;
    apart boolean;
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
    apart := wanted IS NOT NULL OR EXISTS (
        SELECT FROM chunk c WHERE c.tenant IN (who, '0') AND c.collection = ANY (among) AND c.part IS NOT NULL);
    IF NOT apart THEN
        -- Not EXECUTE: the plan is kept from call to call. In a subquery each product is made once. Here without the
        -- condition on the part, which stands behind the vector, the text and all else of a row: to read
        -- that far takes a third of the whole search.
        RETURN QUERY SELECT n.tenant, n.collection, n.document_id, n.ordinal, -n.distance FROM (
            SELECT c.tenant, c.collection, c.document_id, c.ordinal, c.embedding <#> question AS distance
            FROM chunk c
            WHERE c.embedder = model AND c.tenant IN (who, '0') AND c.collection = ANY (among)
              AND (c.tenant = who OR c.public) AND (c.expires_at IS NULL OR c.expires_at > now())
            ORDER BY distance, c.tenant, c.collection, c.document_id, c.ordinal LIMIT amount) n;
    ELSIF wanted IS NULL THEN
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
END $_$;

CREATE FUNCTION signalbox.note_changed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    shown text := coalesce(current_setting('signalbox.shadows', true), '');
BEGIN
    PERFORM set_config('signalbox.shadows', 'on', true);
    INSERT INTO changed (tenant, collection, id)
    SELECT t.tenant, k.number, t.id FROM touched t
    JOIN collection k ON k.tenant = t.tenant AND k.shadow_of = t.collection AND k.retired_at IS NULL
    ORDER BY t.id
    ON CONFLICT (tenant, collection, id) DO UPDATE SET changed_by = excluded.changed_by;
    PERFORM set_config('signalbox.shadows', shown, true);
    RETURN NULL;
END $$;

CREATE FUNCTION signalbox.note_use(scope text, zone text, asked bigint, spent bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := verified_tenant(scope);
BEGIN
    SET LOCAL synchronous_commit = off;
    INSERT INTO tenant_use AS known
    VALUES (who, today(coalesce((SELECT s.time_zone FROM tenant_setting s WHERE s.tenant = who), zone)),
            greatest(asked, 0), greatest(spent, 0))
    ON CONFLICT (tenant) DO UPDATE SET
        day = greatest(known.day, excluded.day),
        questions = CASE WHEN known.day < excluded.day THEN 0 ELSE known.questions END + excluded.questions,
        tokens = CASE WHEN known.day < excluded.day THEN 0 ELSE known.tokens END + excluded.tokens;
END $$;

CREATE FUNCTION signalbox.parts() RETURNS integer[]
    LANGUAGE sql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$ SELECT parts(current_setting('signalbox.scope', true)) $$;

CREATE FUNCTION signalbox.parts(scope text) RETURNS integer[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := verified_tenant(scope);
    mine text[] := verified_principals(scope);
BEGIN
    RETURN ARRAY(SELECT k.number FROM collection k
                 WHERE k.tenant = who AND k.part_of IS NOT NULL AND readable(k.readers, mine));
END $$;

CREATE FUNCTION signalbox.passages(scope text, tenants text[], among integer[], documents text[], ordinals integer[]) RETURNS TABLE(tenant text, collection integer, document_id text, ordinal integer, title text, body text, url text, heading text, start_character integer, end_character integer, metadata jsonb, gap text, fields jsonb, places jsonb)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    who text := verified_tenant(scope);
    seen integer[] := parts(scope);
BEGIN
    -- In this language the plan of the statement is kept from call to call.
    RETURN QUERY SELECT c.tenant, c.collection, c.document_id, c.ordinal, d.title, c.body, d.url, c.heading, c.start_character,
           c.end_character, d.metadata, c.gap, d.fields, c.places
    FROM unnest(tenants, among, documents, ordinals) AS wanted (tenant, collection, document_id, ordinal)
    JOIN chunk c USING (tenant, collection, document_id, ordinal)
    JOIN document d ON d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id
    WHERE (c.tenant = who OR (c.tenant = '0' AND c.public)) AND (c.part IS NULL OR c.part = ANY (seen))
      AND (c.expires_at IS NULL OR c.expires_at > now());
END $$;

CREATE FUNCTION signalbox.principals() RETURNS text[]
    LANGUAGE sql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$ SELECT verified_principals(current_setting('signalbox.scope', true)) $$;

CREATE FUNCTION signalbox.readable(readers text[], principals text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN ((readers IS NULL) OR (readers && principals) OR ('*'::text = ANY (principals)));

CREATE FUNCTION signalbox.refresh_statistics() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    ANALYZE collection, document, chunk, term, field_value, field_count, field_word;
END $$;

CREATE FUNCTION signalbox.register_embedder(model text, size integer) RETURNS smallint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION signalbox.retired_collections(pass text, seconds double precision, most integer) RETURNS TABLE(tenant text, collection integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what was retired' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
        SELECT k.tenant, k.number FROM collection k
        WHERE k.shadow_of IS NOT NULL AND CASE
            WHEN k.retired_at IS NOT NULL THEN k.retired_at <= now() - make_interval(secs => seconds)
            ELSE NOT EXISTS (SELECT FROM job j WHERE j.tenant = k.tenant AND j.id = k.built_by
                             AND j.status IN ('queued', 'running', 'failed')) END
        LIMIT most;
END $$;

CREATE FUNCTION signalbox.reweighed_collections(pass text, most integer) RETURNS TABLE(tenant text, collection integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker is told what is being recomputed' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY SELECT k.tenant, k.number FROM collection k
                 WHERE k.weighed_id IS NOT NULL AND k.shadow_of IS NULL LIMIT most;
END $$;

CREATE FUNCTION signalbox.shadows() RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$ SELECT coalesce(current_setting('signalbox.shadows', true), '') = 'on' $$;

CREATE FUNCTION signalbox.sweep(pass text, most integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $_$
DECLARE
    name text;
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker sweeps' USING ERRCODE = 'insufficient_privilege';
    END IF;
    FOREACH name IN ARRAY ARRAY['job', 'trace', 'conversation', 'exchange', 'erasure', 'feedback_label'] LOOP
        -- From tenant to tenant in the index, which begins with them. What is used again meanwhile stays.
        EXECUTE format($delete$
            WITH RECURSIVE who AS (
                SELECT min(t.tenant) AS tenant FROM %1$I t
                UNION ALL
                SELECT (SELECT min(t.tenant) FROM %1$I t WHERE t.tenant > w.tenant)
                FROM who w WHERE w.tenant IS NOT NULL)
            DELETE FROM %1$I WHERE expires_at <= now() AND (tenant, id) IN (
                SELECT old.tenant, old.id
                FROM who w, LATERAL (SELECT t.tenant, t.id FROM %1$I t
                                     WHERE t.tenant = w.tenant AND t.expires_at <= now()
                                     ORDER BY t.expires_at LIMIT $1) old
                LIMIT $1)
        $delete$, name) USING most;
    END LOOP;
END $_$;

CREATE FUNCTION signalbox.take_job(pass text, seconds double precision, known uuid[], most integer) RETURNS TABLE(tenant text, id uuid, lease uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    who text;
    free record;
BEGIN
    IF verified_tenant(pass) <> E'\nworker' THEN
        RAISE EXCEPTION 'only a worker takes jobs' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Whose last job was started longest ago comes first: many jobs of one tenant hold up no other.
    FOR who IN
        WITH RECURSIVE waiting AS (
            SELECT min(j.tenant) AS tenant FROM job j WHERE j.status IN ('queued', 'running') AND j.free_at <= now()
            UNION ALL
            SELECT (SELECT min(j.tenant) FROM job j
                    WHERE j.status IN ('queued', 'running') AND j.free_at <= now() AND j.tenant > w.tenant)
            FROM waiting w WHERE w.tenant IS NOT NULL)
        SELECT w.tenant FROM waiting w WHERE w.tenant IS NOT NULL
        ORDER BY (SELECT max(j.started_at) FROM job j WHERE j.tenant = w.tenant) NULLS FIRST, w.tenant
    LOOP
        IF most IS NOT NULL THEN
            -- Two workers that look at once must not both find the last place free.
            CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtext('signalbox.take_job'), hashtext(who));
            CONTINUE WHEN (SELECT count(*) FROM job j
                           WHERE j.tenant = who AND j.status = 'running' AND j.free_at > now()) >= most;
        END IF;
        SELECT j.id, j.status INTO free FROM job j
        WHERE j.tenant = who AND j.status IN ('queued', 'running') AND j.free_at <= now()
          AND (j.sync IS NULL OR j.sync = ANY (known))
        ORDER BY j.delivery LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN QUERY UPDATE job j
            SET status = 'running', lease = gen_random_uuid(), free_at = now() + make_interval(secs => seconds),
                started_at = now(), deaths = j.deaths + (free.status = 'running')::integer
            WHERE j.tenant = who AND j.id = free.id
            RETURNING j.tenant, j.id, j.lease;
            RETURN;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION signalbox.tenant() RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$ SELECT verified_tenant(current_setting('signalbox.scope', true)) $$;

CREATE TABLE signalbox.tenant_setting (
    tenant text NOT NULL,
    sources text[],
    time_zone text,
    week_start smallint,
    fiscal_year_start smallint,
    collection text,
    language text,
    questions_per_day bigint,
    tokens_per_day bigint,
    CONSTRAINT tenant_setting_collection_check CHECK ((collection <> ''::text)),
    CONSTRAINT tenant_setting_fiscal_year_start_check CHECK (((fiscal_year_start >= 1) AND (fiscal_year_start <= 12))),
    CONSTRAINT tenant_setting_language_check CHECK ((language ~ '^[a-z]{2}$'::text)),
    CONSTRAINT tenant_setting_questions_per_day_check CHECK ((questions_per_day >= 0)),
    CONSTRAINT tenant_setting_sources_check CHECK ((cardinality(sources) > 0)),
    CONSTRAINT tenant_setting_tenant_check CHECK ((tenant <> ''::text)),
    CONSTRAINT tenant_setting_time_zone_check CHECK ((time_zone <> ''::text)),
    CONSTRAINT tenant_setting_tokens_per_day_check CHECK ((tokens_per_day >= 0)),
    CONSTRAINT tenant_setting_week_start_check CHECK (((week_start >= 0) AND (week_start <= 6)))
);

ALTER TABLE ONLY signalbox.tenant_setting FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.tenant_setting IS 'what differs from the settings of the service; null is as these say';

COMMENT ON COLUMN signalbox.tenant_setting.sources IS 'names of the sources that questions of the tenant may be put to; null is all';

COMMENT ON COLUMN signalbox.tenant_setting.collection IS 'asked by questions that name none';

CREATE TABLE signalbox.tenant_use (
    tenant text NOT NULL,
    day date NOT NULL,
    questions bigint NOT NULL,
    tokens bigint NOT NULL,
    CONSTRAINT tenant_use_tenant_check CHECK ((tenant <> ''::text))
)
WITH (fillfactor='50');

ALTER TABLE ONLY signalbox.tenant_use FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.tenant_use.day IS 'in the time zone of the tenant; it never goes back, so that another zone begins no day anew';

COMMENT ON COLUMN signalbox.tenant_use.tokens IS 'of all model calls, those of the prompts and of the answers';

CREATE FUNCTION signalbox.tenant_rules(scope text, zone text, asking integer, OUT access_changed bigint, OUT settings signalbox.tenant_setting, OUT use signalbox.tenant_use, OUT ends_at timestamp with time zone, OUT refused boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    who text := verified_tenant(scope);
    in_zone text;
    this_day date;
BEGIN
    access_changed := coalesce((SELECT a.changed FROM access a WHERE a.tenant = who), 0);
    refused := false;
    SELECT s.* INTO settings FROM tenant_setting s WHERE s.tenant = who;
    IF asking > 0 AND settings.questions_per_day IS NULL AND settings.tokens_per_day IS NULL THEN
        RETURN;
    END IF;
    in_zone := coalesce(settings.time_zone, zone);
    this_day := today(in_zone);
    IF asking > 0 AND settings.questions_per_day IS DISTINCT FROM 0 AND settings.tokens_per_day IS DISTINCT FROM 0 THEN
        -- A count that a crash of the server loses costs less than every question's wait for the disk.
        SET LOCAL synchronous_commit = off;
        INSERT INTO tenant_use AS known VALUES (who, this_day, asking, 0)
        ON CONFLICT (tenant) DO UPDATE SET
            day = greatest(known.day, excluded.day),
            questions = CASE WHEN known.day < excluded.day THEN 0 ELSE known.questions END + asking,
            tokens = CASE WHEN known.day < excluded.day THEN 0 ELSE known.tokens END
        WHERE known.day < excluded.day
           OR coalesce(known.questions + asking <= settings.questions_per_day, true)
          AND coalesce(known.tokens < settings.tokens_per_day, true)
        RETURNING known.* INTO use;
    END IF;
    IF use.day IS NULL THEN
        refused := asking > 0;
        SELECT u.* INTO use FROM tenant_use u WHERE u.tenant = who AND u.day >= this_day;
    END IF;
    IF use.day IS NULL THEN
        use := ROW (who, this_day, 0, 0);
    END IF;
    ends_at := day_end(use.day, in_zone);
END $$;

CREATE FUNCTION signalbox.term_counts(scope text, tenants text[], among integer[], terms text[]) RETURNS TABLE(collection integer, term text, chunks integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION signalbox.today(zone text) RETURNS date
    LANGUAGE plpgsql STABLE
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    RETURN (now() AT TIME ZONE zone)::date;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN (now() AT TIME ZONE 'UTC')::date;
END $$;

CREATE FUNCTION signalbox.verified_key(wanted text, presented bytea) RETURNS TABLE(tenant text, ended text, principals text[], trusted boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION signalbox.verified_name(scope text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION signalbox.verified_principals(scope text) RETURNS text[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
BEGIN
    RETURN (string_to_array(verified_name(scope), E'\n'))[2:];
END $$;

CREATE FUNCTION signalbox.verified_tenant(scope text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'signalbox', 'public', 'pg_temp'
    AS $$
DECLARE
    named text := verified_name(scope);
BEGIN
    RETURN CASE WHEN left(named, 1) = E'\n' THEN named ELSE split_part(named, E'\n', 1) END;
END $$;

CREATE TABLE signalbox.access (
    tenant text NOT NULL,
    changed bigint NOT NULL,
    narrowed bigint NOT NULL,
    CONSTRAINT access_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.access FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.access IS 'changes of readers; what was answered before the last that took a document from somebody is shown to nobody but the operator';

CREATE TABLE signalbox.api_key (
    tenant text NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    principals text[] DEFAULT '{}'::text[] NOT NULL,
    trusted boolean DEFAULT false NOT NULL,
    CONSTRAINT api_key_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT api_key_id_check CHECK ((id <> ''::text)),
    CONSTRAINT api_key_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.api_key FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.api_key.digest IS 'SHA-256 of the whole key, which holds 256 random bits; the key itself is stored nowhere';

COMMENT ON COLUMN signalbox.api_key.last_used_at IS 'to the minute';

COMMENT ON COLUMN signalbox.api_key.principals IS 'as whom its holder reads';

COMMENT ON COLUMN signalbox.api_key.trusted IS 'whether its holder may say as whom a request reads';

CREATE TABLE signalbox.changed (
    tenant text NOT NULL,
    collection integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    changed_by xid8 DEFAULT pg_current_xact_id() NOT NULL
);

ALTER TABLE ONLY signalbox.changed FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.changed IS 'documents that are to be copied once more into the collection under construction';

COMMENT ON COLUMN signalbox.changed.collection IS 'number of the shadow';

COMMENT ON COLUMN signalbox.changed.changed_by IS 'the last transaction: another one than was read means that it has changed since';

CREATE TABLE signalbox.chunk (
    tenant text NOT NULL,
    collection integer NOT NULL,
    document_id text NOT NULL COLLATE pg_catalog."C",
    ordinal integer NOT NULL,
    embedder smallint,
    public boolean NOT NULL,
    expires_at timestamp with time zone,
    start_character integer NOT NULL,
    end_character integer NOT NULL,
    length integer NOT NULL,
    embedding public.halfvec,
    bm25 public.sparsevec(1000000000) NOT NULL,
    fields jsonb NOT NULL,
    heading text NOT NULL,
    digest bytea NOT NULL,
    lexemes tsvector NOT NULL,
    body text NOT NULL,
    gap text DEFAULT ''::text NOT NULL,
    part integer,
    places jsonb
)
WITH (toast_tuple_target='2800');
ALTER TABLE ONLY signalbox.chunk ALTER COLUMN embedding SET STORAGE MAIN;
ALTER TABLE ONLY signalbox.chunk ALTER COLUMN bm25 SET STORAGE MAIN;
ALTER TABLE ONLY signalbox.chunk ALTER COLUMN fields SET STORAGE MAIN;
ALTER TABLE ONLY signalbox.chunk ALTER COLUMN lexemes SET STORAGE EXTERNAL;
ALTER TABLE ONLY signalbox.chunk ALTER COLUMN body SET STORAGE EXTERNAL;

ALTER TABLE ONLY signalbox.chunk FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.chunk.bm25 IS 'the document side of BM25; its inner product with the question''s idf is the score';

COMMENT ON COLUMN signalbox.chunk.digest IS 'of the text that was embedded: a passage that comes again keeps its vector';

COMMENT ON COLUMN signalbox.chunk.lexemes IS 'terms as "<collection>:<term>", so that one index keeps collections apart; labels A title, B important, C questions, D text';

COMMENT ON COLUMN signalbox.chunk.gap IS 'the white space between this passage and the next one of the document';

COMMENT ON COLUMN signalbox.chunk.part IS 'as of the document';

COMMENT ON COLUMN signalbox.chunk.places IS 'those of the document that the passage touches; characters are the document''s';

CREATE SEQUENCE signalbox.collection_number
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE signalbox.collection (
    tenant text NOT NULL,
    number integer DEFAULT nextval('signalbox.collection_number'::regclass) NOT NULL,
    name text NOT NULL,
    embedder smallint,
    analysis integer NOT NULL,
    fields jsonb DEFAULT '{}'::jsonb NOT NULL,
    languages jsonb DEFAULT '{}'::jsonb NOT NULL,
    documents bigint DEFAULT 0 NOT NULL,
    public_documents bigint DEFAULT 0 NOT NULL,
    chunks bigint DEFAULT 0 NOT NULL,
    words bigint DEFAULT 0 NOT NULL,
    mean_length double precision DEFAULT 0 NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    folding integer DEFAULT 0 NOT NULL,
    records text[] DEFAULT '{}'::text[] NOT NULL,
    part_of integer,
    readers text[],
    description text DEFAULT ''::text NOT NULL,
    split integer DEFAULT 1 NOT NULL,
    shadow_of integer,
    built_by uuid,
    retired_at timestamp with time zone,
    weighed_id text COLLATE pg_catalog."C",
    weighed_ordinal integer,
    CONSTRAINT collection_name_check CHECK ((name <> ''::text)),
    CONSTRAINT collection_part_check CHECK ((((part_of IS NULL) = (readers IS NULL)) AND ((part_of IS NULL) = (number > 0)))),
    CONSTRAINT collection_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.collection FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.collection.fields IS 'metadata fields: name to {"type", "item", "separator", "declared", "description"}';

COMMENT ON COLUMN signalbox.collection.words IS 'sum of the passages'' lengths';

COMMENT ON COLUMN signalbox.collection.mean_length IS 'BM25''s average length that passages are weighed with; 0 before the first';

COMMENT ON COLUMN signalbox.collection.version IS 'raised by every change: what was read of an older version is stale';

COMMENT ON COLUMN signalbox.collection.folding IS 'version of the folding that field_word was made with; another one is made anew at the end of the next ingestion';

COMMENT ON COLUMN signalbox.collection.records IS 'words for one of its documents, as declared';

COMMENT ON COLUMN signalbox.collection.part_of IS 'number of the collection whose documents with these readers it counts; its name is their digest';

COMMENT ON COLUMN signalbox.collection.readers IS 'users and groups, sorted';

COMMENT ON COLUMN signalbox.collection.description IS 'as given; where it is empty, a draft is made of the documents when it is asked for';

COMMENT ON COLUMN signalbox.collection.split IS 'version of the splitter that cut its documents into passages';

COMMENT ON COLUMN signalbox.collection.shadow_of IS 'number of the collection that this one is to replace, or that has replaced it: nobody is shown this one';

COMMENT ON COLUMN signalbox.collection.built_by IS 'job that made it of what an older one held';

COMMENT ON COLUMN signalbox.collection.retired_at IS 'when a shadow was given up or replaced: its rows go';

COMMENT ON COLUMN signalbox.collection.weighed_id IS 'with weighed_ordinal: the last passage whose BM25 vector was recomputed for mean_length; those behind it may have an earlier one; null if there are none';

CREATE TABLE signalbox.conversation (
    tenant text NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    messages integer DEFAULT 0 NOT NULL,
    summary text,
    summarised integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    principals text[] DEFAULT '{}'::text[] NOT NULL,
    as_of bigint DEFAULT 0 NOT NULL,
    erased integer DEFAULT 0 NOT NULL,
    CONSTRAINT conversation_id_check CHECK ((id <> ''::text)),
    CONSTRAINT conversation_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.conversation FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.conversation.messages IS 'number of the last message';

COMMENT ON COLUMN signalbox.conversation.summarised IS 'number of the last message that the summary tells of';

COMMENT ON COLUMN signalbox.conversation.as_of IS 'of the summary: access.changed when the turns that it tells of were read';

COMMENT ON COLUMN signalbox.conversation.erased IS 'how often turns were erased: a summary that was begun before is not stored';

CREATE TABLE signalbox.dead_letter (
    tenant text NOT NULL,
    job uuid NOT NULL,
    index integer NOT NULL,
    place text NOT NULL,
    document_id text,
    reason text NOT NULL,
    payload bytea,
    failed_at timestamp with time zone DEFAULT now() NOT NULL,
    readers text[]
);

ALTER TABLE ONLY signalbox.dead_letter FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.dead_letter.index IS 'its place in the delivery, from 0';

COMMENT ON COLUMN signalbox.dead_letter.payload IS 'the record as it came; of a file the job keeps it whole';

CREATE SEQUENCE signalbox.delivery
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE signalbox.document (
    tenant text NOT NULL,
    collection integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL,
    url text,
    body text NOT NULL,
    metadata jsonb NOT NULL,
    fields jsonb NOT NULL,
    important text[] DEFAULT '{}'::text[] NOT NULL,
    questions text[] DEFAULT '{}'::text[] NOT NULL,
    language text NOT NULL,
    digest bytea NOT NULL,
    chunks integer NOT NULL,
    words bigint NOT NULL,
    public boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    delivery bigint DEFAULT 0 NOT NULL,
    part integer,
    places jsonb,
    CONSTRAINT document_id_check CHECK ((id <> ''::text))
)
WITH (toast_tuple_target='256');
ALTER TABLE ONLY signalbox.document ALTER COLUMN body SET STORAGE EXTERNAL;

ALTER TABLE ONLY signalbox.document FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.document.fields IS 'metadata in the normal form that filters compare (retrievers.core.fields)';

COMMENT ON COLUMN signalbox.document.digest IS 'of everything that was given: an equal one means nothing to do';

COMMENT ON COLUMN signalbox.document.delivery IS 'number of the delivery it came with: one carried out late does not replace what a later one brought';

COMMENT ON COLUMN signalbox.document.part IS 'number of the part of the collection that it belongs to; null where everybody of the tenant reads it';

COMMENT ON COLUMN signalbox.document.places IS 'unit (page, slide, row), sheet, and marks: the character where each begins and its number';

CREATE TABLE signalbox.embedder (
    number smallint NOT NULL,
    name text NOT NULL,
    dimension integer NOT NULL,
    CONSTRAINT embedder_dimension_check CHECK (((dimension >= 1) AND (dimension <= 4000)))
);

ALTER TABLE signalbox.embedder ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME signalbox.embedder_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE signalbox.erasure (
    tenant text NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    subject bytea NOT NULL,
    principals text[] NOT NULL,
    at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone DEFAULT (now() + '01:00:00'::interval) NOT NULL,
    CONSTRAINT erasure_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.erasure FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.erasure.principals IS 'as whom was erased: what others asked is not concerned';

CREATE TABLE signalbox.exchange (
    tenant text NOT NULL,
    id uuid NOT NULL,
    conversation text COLLATE pg_catalog."C",
    asker text,
    question text NOT NULL,
    answer text,
    status text DEFAULT 'unanswered'::text NOT NULL,
    trace uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    expires_at timestamp with time zone NOT NULL,
    principals text[] DEFAULT '{}'::text[] NOT NULL,
    as_of bigint DEFAULT 0 NOT NULL,
    kind text DEFAULT 'ask'::text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT exchange_kind_check CHECK ((kind = ANY (ARRAY['retrieve'::text, 'augment'::text, 'ask'::text]))),
    CONSTRAINT exchange_status_check CHECK ((status = ANY (ARRAY['unanswered'::text, 'answered'::text, 'refused'::text, 'failed'::text, 'abandoned'::text]))),
    CONSTRAINT exchange_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.exchange FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.exchange IS 'questions with their answers; feedback is about the trace';

COMMENT ON COLUMN signalbox.exchange.kind IS 'what was asked for: hits, a prompt or an answer';

CREATE TABLE signalbox.feedback (
    tenant text NOT NULL,
    trace uuid NOT NULL,
    score smallint,
    comment text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    asker text,
    conversation text COLLATE pg_catalog."C",
    CONSTRAINT feedback_score_check CHECK (((score >= 0) AND (score <= 10))),
    CONSTRAINT feedback_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.feedback FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.feedback IS 'one judgement per answer, the last one given';

COMMENT ON COLUMN signalbox.feedback.score IS 'null while only documents or a filter were given';

CREATE TABLE signalbox.feedback_document (
    tenant text NOT NULL,
    collection integer NOT NULL,
    document_id text NOT NULL COLLATE pg_catalog."C",
    trace uuid NOT NULL,
    share real NOT NULL
);

ALTER TABLE ONLY signalbox.feedback_document FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.feedback_document.share IS 'how much of the judgement falls on the document: 1 on the first hit, less on later ones';

CREATE TABLE signalbox.feedback_label (
    tenant text NOT NULL,
    id uuid NOT NULL,
    document_ids text[] DEFAULT '{}'::text[] NOT NULL,
    filter jsonb,
    expires_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY signalbox.feedback_label FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.feedback_label.id IS 'the trace, as in feedback';

COMMENT ON COLUMN signalbox.feedback_label.document_ids IS 'documents that the user opened or found right';

COMMENT ON COLUMN signalbox.feedback_label.filter IS 'the right filter of the question; {} if no filter is right; null if nothing was said';

CREATE TABLE signalbox.field_count (
    tenant text NOT NULL,
    collection integer NOT NULL,
    field text NOT NULL COLLATE pg_catalog."C",
    documents integer NOT NULL,
    kept integer NOT NULL,
    long integer NOT NULL,
    CONSTRAINT field_count_documents_check CHECK ((documents > 0))
)
WITH (fillfactor='50');

ALTER TABLE ONLY signalbox.field_count FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.field_count.documents IS 'documents that have the field';

COMMENT ON COLUMN signalbox.field_count.kept IS 'its rows in field_value';

COMMENT ON COLUMN signalbox.field_count.long IS 'values over 200 characters, counted once for every document';

CREATE TABLE signalbox.field_value (
    tenant text NOT NULL,
    collection integer NOT NULL,
    field text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    number double precision,
    documents integer NOT NULL,
    CONSTRAINT field_value_documents_check CHECK ((documents > 0)),
    CONSTRAINT field_value_value_check CHECK ((length(value) <= 200))
)
WITH (fillfactor='80');

ALTER TABLE ONLY signalbox.field_value FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.field_value IS 'in how many documents of a collection a field has each value; text over 200 characters is only counted, and a document''s own id and title are left out';

COMMENT ON COLUMN signalbox.field_value.value IS 'as filters compare it: text, "true" or "false", an ISO date; a number as its shortest text';

CREATE TABLE signalbox.field_word (
    tenant text NOT NULL,
    collection integer NOT NULL,
    words text NOT NULL COLLATE pg_catalog."C",
    place smallint NOT NULL,
    field text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C"
);

ALTER TABLE ONLY signalbox.field_word FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.field_word.words IS 'the folded value from its word number `place` on (retrievers.text.folding)';

CREATE TABLE signalbox.job (
    tenant text NOT NULL,
    id uuid NOT NULL,
    collection text NOT NULL,
    delivery bigint DEFAULT nextval('signalbox.delivery'::regclass) NOT NULL,
    file text,
    payload bytea,
    status text NOT NULL,
    free_at timestamp with time zone DEFAULT now() NOT NULL,
    lease uuid,
    tries integer DEFAULT 0 NOT NULL,
    deaths integer DEFAULT 0 NOT NULL,
    in_hand integer,
    parked integer[] DEFAULT '{}'::integer[] NOT NULL,
    documents integer,
    done integer DEFAULT 0 NOT NULL,
    inserted integer DEFAULT 0 NOT NULL,
    updated integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    expires_at timestamp with time zone,
    sync uuid,
    deleted integer DEFAULT 0 NOT NULL,
    rebuild jsonb,
    CONSTRAINT job_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'done'::text, 'failed'::text]))),
    CONSTRAINT job_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.job FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.job.collection IS 'its name: the collection may not exist yet';

COMMENT ON COLUMN signalbox.job.file IS 'name of the file the payload is; null for a JSON list of records';

COMMENT ON COLUMN signalbox.job.payload IS 'kept until nothing of it is needed to try again';

COMMENT ON COLUMN signalbox.job.free_at IS 'from when on a worker may take it: the end of the lease while it is running';

COMMENT ON COLUMN signalbox.job.lease IS 'token of the one worker that may write for it';

COMMENT ON COLUMN signalbox.job.tries IS 'how often a dependency failed it';

COMMENT ON COLUMN signalbox.job.deaths IS 'how many workers did not come back from it';

COMMENT ON COLUMN signalbox.job.in_hand IS 'the document a worker has in hand while it takes them one by one, to find the one it dies of';

COMMENT ON COLUMN signalbox.job.parked IS 'documents that workers died of: they are not tried again';

COMMENT ON COLUMN signalbox.job.sync IS 'the mirror that it brings up to date, in place of a payload; carried out where the source is known';

COMMENT ON COLUMN signalbox.job.rebuild IS 'what it makes of the collection: {"embedder": name, null for the one it has, "at": how far it is}; null for an ingestion';

CREATE TABLE signalbox.login (
    name text NOT NULL,
    password text NOT NULL,
    one boolean DEFAULT true NOT NULL,
    CONSTRAINT login_one_check CHECK (one)
);

CREATE TABLE signalbox.message (
    tenant text NOT NULL,
    conversation text NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    role text NOT NULL,
    content text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    as_of bigint DEFAULT 0 NOT NULL,
    asker text,
    CONSTRAINT message_role_check CHECK ((role = ANY (ARRAY['user'::text, 'assistant'::text])))
);

ALTER TABLE ONLY signalbox.message FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.message IS 'turns of conversations, from 1 on; a question and its answer are added together';

COMMENT ON COLUMN signalbox.message.asker IS 'of the question and its answer alike';

CREATE TABLE signalbox.migration (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE signalbox.secret (
    key bytea NOT NULL,
    one boolean DEFAULT true NOT NULL,
    CONSTRAINT secret_key_check CHECK ((length(key) = 32)),
    CONSTRAINT secret_one_check CHECK (one)
);

CREATE TABLE signalbox.sync (
    tenant text NOT NULL,
    id uuid NOT NULL,
    collection text NOT NULL,
    source text NOT NULL,
    name text,
    every_s double precision,
    due_at timestamp with time zone,
    documents integer,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    forgotten_at timestamp with time zone,
    heard_at timestamp with time zone,
    CONSTRAINT sync_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.sync FORCE ROW LEVEL SECURITY;

COMMENT ON COLUMN signalbox.sync.id IS 'made of tenant, collection and source: who syncs the same again goes on with the same manifest';

COMMENT ON COLUMN signalbox.sync.collection IS 'its name: the collection may not exist yet';

COMMENT ON COLUMN signalbox.sync.source IS 'without passwords: these stay with whoever runs it';

COMMENT ON COLUMN signalbox.sync.name IS 'of its schedule, where it has one';

COMMENT ON COLUMN signalbox.sync.documents IS 'how many the last whole run left; null before the first';

COMMENT ON COLUMN signalbox.sync.forgotten_at IS 'since when it is followed no more; its documents stay, and are those of no item';

COMMENT ON COLUMN signalbox.sync.heard_at IS 'when a worker last said that its settings hold the schedule';

CREATE TABLE signalbox.sync_document (
    tenant text NOT NULL,
    collection text NOT NULL,
    document_id text NOT NULL,
    sync uuid NOT NULL,
    item text COLLATE pg_catalog."C",
    run bigint NOT NULL,
    given bytea NOT NULL,
    digest bytea,
    former uuid
);

ALTER TABLE ONLY signalbox.sync_document FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.sync_document IS 'which source and item a document of a collection comes from; written before the document';

COMMENT ON COLUMN signalbox.sync_document.item IS 'null where no item gives it any more: it is to be deleted';

COMMENT ON COLUMN signalbox.sync_document.run IS 'number of the attempt that found it last';

COMMENT ON COLUMN signalbox.sync_document.given IS 'digest of the document as the item gave it';

COMMENT ON COLUMN signalbox.sync_document.digest IS 'document.digest as this source stored it; null until it has';

COMMENT ON COLUMN signalbox.sync_document.former IS 'the source that it was taken over from; null where it came with its own';

CREATE TABLE signalbox.sync_item (
    tenant text NOT NULL,
    sync uuid NOT NULL,
    item text NOT NULL COLLATE pg_catalog."C",
    version text,
    digest bytea
);

ALTER TABLE ONLY signalbox.sync_item FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.sync_item IS 'a file, object, page or row of the source, as it was last read';

COMMENT ON COLUMN signalbox.sync_item.version IS 'what says that it has not changed: size and times, an etag, a blob, an updated-at column; null has it read again';

COMMENT ON COLUMN signalbox.sync_item.digest IS 'of its content, where the version alone cannot be trusted';

CREATE TABLE signalbox.term (
    tenant text NOT NULL,
    collection integer NOT NULL,
    term text NOT NULL COLLATE pg_catalog."C",
    chunks integer NOT NULL
)
WITH (fillfactor='70');

ALTER TABLE ONLY signalbox.term FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.term IS 'in how many passages of a collection each term occurs';

CREATE TABLE signalbox.trace (
    tenant text NOT NULL,
    id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    request jsonb NOT NULL,
    record jsonb NOT NULL,
    principals text[] DEFAULT '{}'::text[] NOT NULL,
    as_of bigint DEFAULT 0 NOT NULL,
    asker text,
    conversation text COLLATE pg_catalog."C",
    CONSTRAINT trace_tenant_check CHECK ((tenant <> ''::text))
);

ALTER TABLE ONLY signalbox.trace FORCE ROW LEVEL SECURITY;

COMMENT ON TABLE signalbox.trace IS 'decision records (agent.trace); what has expired is not shown any more and deleted in batches';

COMMENT ON COLUMN signalbox.trace.request IS 'what was asked, with the moment it was asked as of, so that it can be asked again';

COMMENT ON COLUMN signalbox.trace.as_of IS 'access.changed when it was asked';

ALTER TABLE ONLY signalbox.access
    ADD CONSTRAINT access_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY signalbox.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.changed
    ADD CONSTRAINT changed_pkey PRIMARY KEY (tenant, collection, id);

ALTER TABLE ONLY signalbox.chunk
    ADD CONSTRAINT chunk_pkey PRIMARY KEY (tenant, collection, document_id, ordinal);

ALTER TABLE ONLY signalbox.collection
    ADD CONSTRAINT collection_name_key UNIQUE NULLS NOT DISTINCT (tenant, part_of, name);

ALTER TABLE ONLY signalbox.collection
    ADD CONSTRAINT collection_pkey PRIMARY KEY (tenant, number);

ALTER TABLE ONLY signalbox.conversation
    ADD CONSTRAINT conversation_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.dead_letter
    ADD CONSTRAINT dead_letter_pkey PRIMARY KEY (tenant, job, index);

ALTER TABLE ONLY signalbox.document
    ADD CONSTRAINT document_pkey PRIMARY KEY (tenant, collection, id);

ALTER TABLE ONLY signalbox.embedder
    ADD CONSTRAINT embedder_name_key UNIQUE (name);

ALTER TABLE ONLY signalbox.embedder
    ADD CONSTRAINT embedder_pkey PRIMARY KEY (number);

ALTER TABLE ONLY signalbox.erasure
    ADD CONSTRAINT erasure_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.evaluation
    ADD CONSTRAINT evaluation_name_key UNIQUE (name);

ALTER TABLE ONLY signalbox.evaluation
    ADD CONSTRAINT evaluation_pkey PRIMARY KEY (tenant, name);

ALTER TABLE ONLY signalbox.exchange
    ADD CONSTRAINT exchange_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.feedback_document
    ADD CONSTRAINT feedback_document_pkey PRIMARY KEY (tenant, collection, document_id, trace);

ALTER TABLE ONLY signalbox.feedback_label
    ADD CONSTRAINT feedback_label_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.feedback
    ADD CONSTRAINT feedback_pkey PRIMARY KEY (tenant, trace);

ALTER TABLE ONLY signalbox.field_count
    ADD CONSTRAINT field_count_pkey PRIMARY KEY (tenant, collection, field);

ALTER TABLE ONLY signalbox.field_value
    ADD CONSTRAINT field_value_pkey PRIMARY KEY (tenant, collection, field, value);

ALTER TABLE ONLY signalbox.field_word
    ADD CONSTRAINT field_word_pkey PRIMARY KEY (tenant, collection, words, place, field, value);

ALTER TABLE ONLY signalbox.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.login
    ADD CONSTRAINT login_pkey PRIMARY KEY (one);

ALTER TABLE ONLY signalbox.message
    ADD CONSTRAINT message_pkey PRIMARY KEY (tenant, conversation, number);

ALTER TABLE ONLY signalbox.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);

ALTER TABLE ONLY signalbox.secret
    ADD CONSTRAINT secret_pkey PRIMARY KEY (one);

ALTER TABLE ONLY signalbox.sync_document
    ADD CONSTRAINT sync_document_pkey PRIMARY KEY (tenant, collection, document_id);

ALTER TABLE ONLY signalbox.sync_item
    ADD CONSTRAINT sync_item_pkey PRIMARY KEY (tenant, sync, item);

ALTER TABLE ONLY signalbox.sync
    ADD CONSTRAINT sync_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY signalbox.tenant_setting
    ADD CONSTRAINT tenant_setting_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY signalbox.tenant_use
    ADD CONSTRAINT tenant_use_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY signalbox.term
    ADD CONSTRAINT term_pkey PRIMARY KEY (tenant, collection, term);

ALTER TABLE ONLY signalbox.trace
    ADD CONSTRAINT trace_pkey PRIMARY KEY (tenant, id);

CREATE INDEX api_key_id ON signalbox.api_key USING btree (id);

CREATE INDEX changed_order ON signalbox.changed USING btree (tenant, collection, changed_by, id);

CREATE INDEX chunk_collection ON signalbox.chunk USING btree (tenant, collection);

CREATE INDEX chunk_lexemes ON signalbox.chunk USING gin (lexemes) WITH (fastupdate=off);

CREATE INDEX chunk_part ON signalbox.chunk USING btree (tenant, collection) WHERE (part IS NOT NULL);

CREATE INDEX collection_shadow ON signalbox.collection USING btree (tenant, shadow_of) WHERE (shadow_of IS NOT NULL);

CREATE INDEX collection_weighed ON signalbox.collection USING btree (tenant, number) WHERE (weighed_id IS NOT NULL);

CREATE INDEX conversation_expiry ON signalbox.conversation USING btree (tenant, expires_at);

CREATE INDEX document_expiry ON signalbox.document USING btree (expires_at) WHERE (enabled AND (expires_at IS NOT NULL));

CREATE INDEX document_fields ON signalbox.document USING gin (fields jsonb_path_ops);

CREATE INDEX erasure_expiry ON signalbox.erasure USING btree (tenant, expires_at);

CREATE INDEX erasure_subject ON signalbox.erasure USING btree (tenant, subject);

CREATE INDEX exchange_asker ON signalbox.exchange USING btree (tenant, asker, created_at DESC) WHERE (asker IS NOT NULL);

CREATE INDEX exchange_conversation ON signalbox.exchange USING btree (tenant, conversation, created_at DESC) WHERE (conversation IS NOT NULL);

CREATE INDEX exchange_expiry ON signalbox.exchange USING btree (tenant, expires_at);

CREATE INDEX exchange_time ON signalbox.exchange USING btree (tenant, created_at DESC);

CREATE INDEX feedback_asker ON signalbox.feedback USING btree (tenant, asker) WHERE (asker IS NOT NULL);

CREATE INDEX feedback_document_trace ON signalbox.feedback_document USING btree (tenant, trace);

CREATE INDEX feedback_label_expiry ON signalbox.feedback_label USING btree (tenant, expires_at);

CREATE INDEX field_value_commonest ON signalbox.field_value USING btree (tenant, collection, field, documents DESC, value) WHERE (documents > 1);

CREATE INDEX field_value_number ON signalbox.field_value USING btree (tenant, collection, field, number) WHERE (number IS NOT NULL);

CREATE INDEX job_delivery ON signalbox.job USING btree (tenant, delivery);

CREATE INDEX job_expiry ON signalbox.job USING btree (tenant, expires_at);

CREATE INDEX job_free ON signalbox.job USING btree (tenant, free_at) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX job_of_sync ON signalbox.job USING btree (tenant, sync, delivery) WHERE (sync IS NOT NULL);

CREATE INDEX job_started ON signalbox.job USING btree (tenant, started_at);

CREATE UNIQUE INDEX job_sync ON signalbox.job USING btree (tenant, sync) WHERE ((sync IS NOT NULL) AND (status = ANY (ARRAY['queued'::text, 'running'::text])));

CREATE INDEX message_asker ON signalbox.message USING btree (tenant, asker) WHERE (asker IS NOT NULL);

CREATE INDEX sync_document_item ON signalbox.sync_document USING btree (tenant, sync, item);

CREATE INDEX trace_asker ON signalbox.trace USING btree (tenant, asker) WHERE (asker IS NOT NULL);

CREATE INDEX trace_conversation ON signalbox.trace USING btree (tenant, conversation) WHERE (conversation IS NOT NULL);

CREATE INDEX trace_expiry ON signalbox.trace USING btree (tenant, expires_at);

CREATE TRIGGER noted_gone AFTER DELETE ON signalbox.document REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION signalbox.note_changed();

CREATE TRIGGER noted_new AFTER INSERT ON signalbox.document REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION signalbox.note_changed();

CREATE TRIGGER noted_update AFTER UPDATE ON signalbox.document REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION signalbox.note_changed();

ALTER TABLE ONLY signalbox.chunk
    ADD CONSTRAINT chunk_tenant_collection_document_id_fkey FOREIGN KEY (tenant, collection, document_id) REFERENCES signalbox.document(tenant, collection, id) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.collection
    ADD CONSTRAINT collection_embedder_fkey FOREIGN KEY (embedder) REFERENCES signalbox.embedder(number);

ALTER TABLE ONLY signalbox.collection
    ADD CONSTRAINT collection_part_fkey FOREIGN KEY (tenant, part_of) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.collection
    ADD CONSTRAINT collection_shadow_fkey FOREIGN KEY (tenant, shadow_of) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.dead_letter
    ADD CONSTRAINT dead_letter_tenant_job_fkey FOREIGN KEY (tenant, job) REFERENCES signalbox.job(tenant, id) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.document
    ADD CONSTRAINT document_tenant_collection_fkey FOREIGN KEY (tenant, collection) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.feedback_document
    ADD CONSTRAINT feedback_document_tenant_trace_fkey FOREIGN KEY (tenant, trace) REFERENCES signalbox.feedback(tenant, trace) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.feedback_label
    ADD CONSTRAINT feedback_label_tenant_id_fkey FOREIGN KEY (tenant, id) REFERENCES signalbox.feedback(tenant, trace) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.field_count
    ADD CONSTRAINT field_count_tenant_collection_fkey FOREIGN KEY (tenant, collection) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.field_value
    ADD CONSTRAINT field_value_tenant_collection_fkey FOREIGN KEY (tenant, collection) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.field_word
    ADD CONSTRAINT field_word_tenant_collection_fkey FOREIGN KEY (tenant, collection) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.message
    ADD CONSTRAINT message_tenant_conversation_fkey FOREIGN KEY (tenant, conversation) REFERENCES signalbox.conversation(tenant, id) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.sync_document
    ADD CONSTRAINT sync_document_tenant_sync_fkey FOREIGN KEY (tenant, sync) REFERENCES signalbox.sync(tenant, id) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.sync_item
    ADD CONSTRAINT sync_item_tenant_sync_fkey FOREIGN KEY (tenant, sync) REFERENCES signalbox.sync(tenant, id) ON DELETE CASCADE;

ALTER TABLE ONLY signalbox.term
    ADD CONSTRAINT term_tenant_collection_fkey FOREIGN KEY (tenant, collection) REFERENCES signalbox.collection(tenant, number) ON DELETE CASCADE;

ALTER TABLE signalbox.access ENABLE ROW LEVEL SECURITY;

CREATE POLICY administration ON signalbox.access FOR SELECT TO signalbox_tenants USING (true);

CREATE POLICY administration ON signalbox.api_key FOR SELECT TO signalbox_tenants USING (true);

CREATE POLICY administration ON signalbox.collection FOR SELECT TO signalbox_tenants USING (true);

CREATE POLICY administration ON signalbox.tenant_setting TO signalbox_tenants USING (true) WITH CHECK (true);

CREATE POLICY administration ON signalbox.tenant_use TO signalbox_tenants USING (true) WITH CHECK (true);

ALTER TABLE signalbox.api_key ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.changed ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.chunk ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.collection ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.conversation ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.dead_letter ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.document ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.erasure ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.evaluation ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.exchange ENABLE ROW LEVEL SECURITY;

CREATE POLICY expired ON signalbox.conversation AS RESTRICTIVE FOR DELETE TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY expired ON signalbox.erasure AS RESTRICTIVE FOR DELETE TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY expired ON signalbox.exchange AS RESTRICTIVE FOR DELETE TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY expired ON signalbox.feedback_label AS RESTRICTIVE FOR DELETE TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY expired ON signalbox.job AS RESTRICTIVE FOR DELETE TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY expired ON signalbox.trace AS RESTRICTIVE FOR DELETE TO signalbox_search USING ((expires_at <= now()));

ALTER TABLE signalbox.feedback ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.feedback_document ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.feedback_label ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.field_count ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.field_value ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.field_word ENABLE ROW LEVEL SECURITY;

CREATE POLICY hand_out ON signalbox.job TO signalbox_search USING (true) WITH CHECK (true);

ALTER TABLE signalbox.job ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.message ENABLE ROW LEVEL SECURITY;

CREATE POLICY move ON signalbox.feedback_document TO signalbox_search USING (true) WITH CHECK (true);

CREATE POLICY own ON signalbox.access TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.api_key TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.changed TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.chunk TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((part IS NULL) OR (part = ANY (( SELECT signalbox.parts() AS parts)::integer[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.collection TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND signalbox.readable(readers, ( SELECT signalbox.principals() AS principals)) AND ((shadow_of IS NULL) OR ( SELECT signalbox.shadows() AS shadows)) AND ((documents > 0) OR (part_of IS NOT NULL) OR (NOT (number = ANY (( SELECT signalbox.concealed(true) AS concealed)::integer[])))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.conversation TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((principals <@ ( SELECT signalbox.principals() AS principals)) OR ('*'::text = ANY (( SELECT signalbox.principals() AS principals)::text[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.dead_letter TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND signalbox.readable(readers, ( SELECT signalbox.principals() AS principals)))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.document TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((part IS NULL) OR (part = ANY (( SELECT signalbox.parts() AS parts)::integer[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.erasure TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.evaluation TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.exchange TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND (as_of >= ( SELECT signalbox.narrowed() AS narrowed)) AND ((principals <@ ( SELECT signalbox.principals() AS principals)) OR ('*'::text = ANY (( SELECT signalbox.principals() AS principals)::text[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.feedback TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.feedback_document TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.feedback_label TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.field_count TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((collection > 0) OR (collection = ANY (( SELECT signalbox.parts() AS parts)::integer[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.field_value TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((collection > 0) OR (collection = ANY (( SELECT signalbox.parts() AS parts)::integer[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.field_word TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((collection > 0) OR (collection = ANY (( SELECT signalbox.parts() AS parts)::integer[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.job TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.message TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND (as_of >= ( SELECT signalbox.narrowed() AS narrowed)) AND (EXISTS ( SELECT
   FROM signalbox.conversation c
  WHERE ((c.tenant = message.tenant) AND (c.id = message.conversation)))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.sync TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.sync_document TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.sync_item TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.tenant_setting TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.tenant_use TO signalbox_app USING ((tenant = ( SELECT signalbox.tenant() AS tenant))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.term TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND ((collection > 0) OR (collection = ANY (( SELECT signalbox.parts() AS parts)::integer[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY own ON signalbox.trace TO signalbox_app USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND (as_of >= ( SELECT signalbox.narrowed() AS narrowed)) AND ((principals <@ ( SELECT signalbox.principals() AS principals)) OR ('*'::text = ANY (( SELECT signalbox.principals() AS principals)::text[]))))) WITH CHECK ((tenant = ( SELECT signalbox.tenant() AS tenant)));

CREATE POLICY platform ON signalbox.chunk FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND public AND (part IS NULL) AND ((expires_at IS NULL) OR (expires_at > now())) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text)));

CREATE POLICY platform ON signalbox.collection FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND (public_documents > 0) AND (shadow_of IS NULL) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text)));

CREATE POLICY platform ON signalbox.document FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND public AND (part IS NULL) AND enabled AND ((expires_at IS NULL) OR (expires_at > now())) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text)));

CREATE POLICY platform ON signalbox.field_count FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text) AND (EXISTS ( SELECT
   FROM signalbox.collection c
  WHERE ((c.tenant = '0'::text) AND (c.number = field_count.collection))))));

CREATE POLICY platform ON signalbox.field_value FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text) AND (EXISTS ( SELECT
   FROM signalbox.collection c
  WHERE ((c.tenant = '0'::text) AND (c.number = field_value.collection))))));

CREATE POLICY platform ON signalbox.field_word FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text) AND (EXISTS ( SELECT
   FROM signalbox.collection c
  WHERE ((c.tenant = '0'::text) AND (c.number = field_word.collection))))));

CREATE POLICY platform ON signalbox.term FOR SELECT TO signalbox_app USING (((tenant = '0'::text) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text) AND (EXISTS ( SELECT
   FROM signalbox.collection c
  WHERE ((c.tenant = '0'::text) AND (c.number = term.collection))))));

CREATE POLICY published ON signalbox.evaluation FOR SELECT TO signalbox_search USING (true);

CREATE POLICY search ON signalbox.access FOR SELECT TO signalbox_search USING (true);

CREATE POLICY search ON signalbox.chunk FOR SELECT TO signalbox_search USING (true);

CREATE POLICY search ON signalbox.collection FOR SELECT TO signalbox_search USING (true);

CREATE POLICY search ON signalbox.document FOR SELECT TO signalbox_search USING (true);

CREATE POLICY search ON signalbox.term FOR SELECT TO signalbox_search USING (true);

CREATE POLICY sql_own ON signalbox.document FOR SELECT TO signalbox_sql USING (((tenant = ( SELECT signalbox.tenant() AS tenant)) AND enabled AND ((part IS NULL) OR (part = ANY (( SELECT signalbox.parts() AS parts)::integer[])))));

CREATE POLICY sql_platform ON signalbox.document FOR SELECT TO signalbox_sql USING (((tenant = '0'::text) AND public AND (part IS NULL) AND enabled AND ((expires_at IS NULL) OR (expires_at > now())) AND (( SELECT signalbox.tenant() AS tenant) <> ''::text)));

CREATE POLICY sweep ON signalbox.conversation TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY sweep ON signalbox.erasure TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY sweep ON signalbox.exchange TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY sweep ON signalbox.feedback_label TO signalbox_search USING ((expires_at <= now()));

CREATE POLICY sweep ON signalbox.trace TO signalbox_search USING ((expires_at <= now()));

ALTER TABLE signalbox.sync ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.sync_document ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.sync_item ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.tenant_setting ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.tenant_use ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.term ENABLE ROW LEVEL SECURITY;

ALTER TABLE signalbox.trace ENABLE ROW LEVEL SECURITY;

CREATE POLICY verification ON signalbox.api_key TO signalbox_keys USING (true) WITH CHECK (true);

GRANT USAGE ON SCHEMA signalbox TO signalbox_search;
GRANT USAGE ON SCHEMA signalbox TO signalbox_app;
GRANT USAGE ON SCHEMA signalbox TO signalbox_sql;
GRANT USAGE ON SCHEMA signalbox TO signalbox_keys;
GRANT USAGE ON SCHEMA signalbox TO signalbox_tenants;

REVOKE ALL ON FUNCTION signalbox.access_changed(scope text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.access_changed(scope text) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.concealed(wholly boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.concealed(wholly boolean) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.day_end(day date, zone text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.day_end(day date, zone text) TO signalbox_tenants;

REVOKE ALL ON FUNCTION signalbox.erased(asker text, conversation text, principals text[], asked_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.erased(asker text, conversation text, principals text[], asked_at timestamp with time zone) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.erases(own text[], principals text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.erases(own text[], principals text[]) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.erasure_subject(kind text, name text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.erasure_subject(kind text, name text) TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.evaluation TO signalbox_app;
GRANT SELECT ON TABLE signalbox.evaluation TO signalbox_search;

REVOKE ALL ON FUNCTION signalbox.evaluations(pass text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.evaluations(pass text) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.expired_documents(pass text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.expired_documents(pass text, most integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.few_passages(who text, among integer[], wanted jsonpath, seen integer[], OUT documents bigint, OUT passages bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION signalbox.matching(scope text, among integer[], candidates tsquery, wider tsquery, question public.sparsevec, wanted jsonpath, amount integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.matching(scope text, among integer[], candidates tsquery, wider tsquery, question public.sparsevec, wanted jsonpath, amount integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.move_feedback(scope text, from_number integer, to_number integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.move_feedback(scope text, from_number integer, to_number integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.narrowed() FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.narrowed() TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.nearest(scope text, among integer[], model smallint, question public.halfvec, wanted jsonpath, amount integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.nearest(scope text, among integer[], model smallint, question public.halfvec, wanted jsonpath, amount integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.note_changed() FROM PUBLIC;

REVOKE ALL ON FUNCTION signalbox.note_use(scope text, zone text, asked bigint, spent bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.note_use(scope text, zone text, asked bigint, spent bigint) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.parts() FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.parts() TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.parts() TO signalbox_sql;

REVOKE ALL ON FUNCTION signalbox.parts(scope text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.parts(scope text) TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.parts(scope text) TO signalbox_sql;

REVOKE ALL ON FUNCTION signalbox.passages(scope text, tenants text[], among integer[], documents text[], ordinals integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.passages(scope text, tenants text[], among integer[], documents text[], ordinals integer[]) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.principals() FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.principals() TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.principals() TO signalbox_search;
GRANT ALL ON FUNCTION signalbox.principals() TO signalbox_sql;

REVOKE ALL ON FUNCTION signalbox.readable(readers text[], principals text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.readable(readers text[], principals text[]) TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.readable(readers text[], principals text[]) TO signalbox_search;
GRANT ALL ON FUNCTION signalbox.readable(readers text[], principals text[]) TO signalbox_sql;

REVOKE ALL ON FUNCTION signalbox.refresh_statistics() FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.refresh_statistics() TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.register_embedder(model text, size integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.register_embedder(model text, size integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.retired_collections(pass text, seconds double precision, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.retired_collections(pass text, seconds double precision, most integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.reweighed_collections(pass text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.reweighed_collections(pass text, most integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.shadows() FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.shadows() TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.sweep(pass text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.sweep(pass text, most integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.take_job(pass text, seconds double precision, known uuid[], most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.take_job(pass text, seconds double precision, known uuid[], most integer) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.tenant() FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.tenant() TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.tenant() TO signalbox_search;
GRANT ALL ON FUNCTION signalbox.tenant() TO signalbox_sql;

GRANT SELECT ON TABLE signalbox.tenant_setting TO signalbox_app;
GRANT SELECT,INSERT,UPDATE ON TABLE signalbox.tenant_setting TO signalbox_tenants;

GRANT INSERT(tenant) ON TABLE signalbox.tenant_setting TO signalbox_app;

GRANT INSERT(time_zone),UPDATE(time_zone) ON TABLE signalbox.tenant_setting TO signalbox_app;

GRANT INSERT(week_start),UPDATE(week_start) ON TABLE signalbox.tenant_setting TO signalbox_app;

GRANT INSERT(fiscal_year_start),UPDATE(fiscal_year_start) ON TABLE signalbox.tenant_setting TO signalbox_app;

GRANT INSERT(collection),UPDATE(collection) ON TABLE signalbox.tenant_setting TO signalbox_app;

GRANT INSERT(language),UPDATE(language) ON TABLE signalbox.tenant_setting TO signalbox_app;

GRANT SELECT ON TABLE signalbox.tenant_use TO signalbox_app;
GRANT SELECT,INSERT,UPDATE ON TABLE signalbox.tenant_use TO signalbox_tenants;

REVOKE ALL ON FUNCTION signalbox.tenant_rules(scope text, zone text, asking integer, OUT access_changed bigint, OUT settings signalbox.tenant_setting, OUT use signalbox.tenant_use, OUT ends_at timestamp with time zone, OUT refused boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.tenant_rules(scope text, zone text, asking integer, OUT access_changed bigint, OUT settings signalbox.tenant_setting, OUT use signalbox.tenant_use, OUT ends_at timestamp with time zone, OUT refused boolean) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.term_counts(scope text, tenants text[], among integer[], terms text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.term_counts(scope text, tenants text[], among integer[], terms text[]) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.today(zone text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.today(zone text) TO signalbox_tenants;

REVOKE ALL ON FUNCTION signalbox.verified_key(wanted text, presented bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.verified_key(wanted text, presented bytea) TO signalbox_app;

REVOKE ALL ON FUNCTION signalbox.verified_name(scope text) FROM PUBLIC;

REVOKE ALL ON FUNCTION signalbox.verified_principals(scope text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.verified_principals(scope text) TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.verified_principals(scope text) TO signalbox_search;
GRANT ALL ON FUNCTION signalbox.verified_principals(scope text) TO signalbox_sql;

REVOKE ALL ON FUNCTION signalbox.verified_tenant(scope text) FROM PUBLIC;
GRANT ALL ON FUNCTION signalbox.verified_tenant(scope text) TO signalbox_app;
GRANT ALL ON FUNCTION signalbox.verified_tenant(scope text) TO signalbox_search;
GRANT ALL ON FUNCTION signalbox.verified_tenant(scope text) TO signalbox_sql;
GRANT ALL ON FUNCTION signalbox.verified_tenant(scope text) TO signalbox_tenants;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.access TO signalbox_app;
GRANT SELECT ON TABLE signalbox.access TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.access TO signalbox_tenants;

GRANT SELECT(changed) ON TABLE signalbox.access TO signalbox_tenants;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.api_key TO signalbox_app;
GRANT SELECT ON TABLE signalbox.api_key TO signalbox_keys;

GRANT SELECT(tenant) ON TABLE signalbox.api_key TO signalbox_tenants;

GRANT UPDATE(last_used_at) ON TABLE signalbox.api_key TO signalbox_keys;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.changed TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.chunk TO signalbox_app;
GRANT SELECT ON TABLE signalbox.chunk TO signalbox_search;

GRANT USAGE ON SEQUENCE signalbox.collection_number TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.collection TO signalbox_app;
GRANT SELECT ON TABLE signalbox.collection TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.collection TO signalbox_tenants;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.conversation TO signalbox_app;
GRANT DELETE ON TABLE signalbox.conversation TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.conversation TO signalbox_search;

GRANT SELECT(id) ON TABLE signalbox.conversation TO signalbox_search;

GRANT SELECT(expires_at) ON TABLE signalbox.conversation TO signalbox_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.dead_letter TO signalbox_app;

GRANT USAGE ON SEQUENCE signalbox.delivery TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.document TO signalbox_app;
GRANT SELECT ON TABLE signalbox.document TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(collection) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(id) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(title) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(url) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(fields) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(language) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(public) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(expires_at) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(created_at) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(updated_at) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT(enabled) ON TABLE signalbox.document TO signalbox_sql;

GRANT SELECT ON TABLE signalbox.embedder TO signalbox_app;

GRANT SELECT,INSERT,DELETE ON TABLE signalbox.erasure TO signalbox_app;
GRANT DELETE ON TABLE signalbox.erasure TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.erasure TO signalbox_search;

GRANT SELECT(id) ON TABLE signalbox.erasure TO signalbox_search;

GRANT SELECT(expires_at) ON TABLE signalbox.erasure TO signalbox_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.exchange TO signalbox_app;
GRANT DELETE ON TABLE signalbox.exchange TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.exchange TO signalbox_search;

GRANT SELECT(id) ON TABLE signalbox.exchange TO signalbox_search;

GRANT SELECT(expires_at) ON TABLE signalbox.exchange TO signalbox_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.feedback TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.feedback_document TO signalbox_app;

GRANT SELECT(tenant) ON TABLE signalbox.feedback_document TO signalbox_search;

GRANT SELECT(collection),UPDATE(collection) ON TABLE signalbox.feedback_document TO signalbox_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.feedback_label TO signalbox_app;
GRANT DELETE ON TABLE signalbox.feedback_label TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.feedback_label TO signalbox_search;

GRANT SELECT(id) ON TABLE signalbox.feedback_label TO signalbox_search;

GRANT SELECT(expires_at) ON TABLE signalbox.feedback_label TO signalbox_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.field_count TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.field_value TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.field_word TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.job TO signalbox_app;
GRANT DELETE ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(id) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(delivery) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(status),UPDATE(status) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(free_at),UPDATE(free_at) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(lease),UPDATE(lease) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(deaths),UPDATE(deaths) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(started_at),UPDATE(started_at) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(expires_at) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT(sync) ON TABLE signalbox.job TO signalbox_search;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.message TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.sync TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.sync_document TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.sync_item TO signalbox_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE signalbox.term TO signalbox_app;
GRANT SELECT ON TABLE signalbox.term TO signalbox_search;

GRANT SELECT,INSERT,DELETE ON TABLE signalbox.trace TO signalbox_app;
GRANT DELETE ON TABLE signalbox.trace TO signalbox_search;

GRANT SELECT(tenant) ON TABLE signalbox.trace TO signalbox_search;

GRANT SELECT(id) ON TABLE signalbox.trace TO signalbox_search;

GRANT SELECT(expires_at) ON TABLE signalbox.trace TO signalbox_search;
