-- What metadata fields hold: values with counts, ranges, and names by any of their words.
--
-- Kept exact by ingestion in the transaction that writes the documents, under the collection's lock
-- (retrievers.ingest.values), so that no question and no catalogue has to look at documents.

CREATE TABLE field_value (
    tenant text NOT NULL,
    collection integer NOT NULL,
    field text NOT NULL COLLATE "C",
    value text NOT NULL COLLATE "C" CHECK (length(value) <= 200),
    number double precision,
    documents integer NOT NULL CHECK (documents > 0),
    PRIMARY KEY (tenant, collection, field, value),
    FOREIGN KEY (tenant, collection) REFERENCES collection ON DELETE CASCADE
) WITH (fillfactor = 80);
COMMENT ON TABLE field_value IS 'in how many documents of a collection a field has each value; text over 200 characters is only counted, and a document''s own id and title are left out';
COMMENT ON COLUMN field_value.value IS 'as filters compare it: text, "true" or "false", an ISO date; a number as its shortest text';
-- The commonest first. What occurs once is most of a field of names, and in no order among itself.
CREATE INDEX field_value_commonest ON field_value (tenant, collection, field, documents DESC, value) WHERE documents > 1;
-- The range of a number; that of a date is the first and the last of the primary key.
CREATE INDEX field_value_number ON field_value (tenant, collection, field, number) WHERE number IS NOT NULL;

CREATE TABLE field_count (
    tenant text NOT NULL,
    collection integer NOT NULL,
    field text NOT NULL COLLATE "C",
    documents integer NOT NULL CHECK (documents > 0),
    kept integer NOT NULL,
    long integer NOT NULL,
    PRIMARY KEY (tenant, collection, field),
    FOREIGN KEY (tenant, collection) REFERENCES collection ON DELETE CASCADE
) WITH (fillfactor = 50);
COMMENT ON COLUMN field_count.documents IS 'documents that have the field';
COMMENT ON COLUMN field_count.kept IS 'its rows in field_value';
COMMENT ON COLUMN field_count.long IS 'values over 200 characters, counted once for every document';

-- A name from any of its words on: "guido van rossum", "van rossum" and "rossum" all lead to the value, and
-- the words that a question has are a range of this key. An index on an array of words could not be used
-- under row security, whose operators must be leakproof.
CREATE TABLE field_word (
    tenant text NOT NULL,
    collection integer NOT NULL,
    words text NOT NULL COLLATE "C",
    place smallint NOT NULL,
    field text NOT NULL COLLATE "C",
    value text NOT NULL COLLATE "C",
    PRIMARY KEY (tenant, collection, words, place, field, value),
    FOREIGN KEY (tenant, collection) REFERENCES collection ON DELETE CASCADE
);
COMMENT ON COLUMN field_word.words IS 'the folded value from its word number `place` on (retrievers.text.folding)';

ALTER TABLE collection ADD COLUMN folding integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN collection.folding IS 'version of the folding that field_word was made with; another one is made anew at the end of the next ingestion';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['field_value', 'field_count', 'field_word'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
        EXECUTE format('CREATE POLICY platform ON %1$I FOR SELECT TO signalbox_app
            USING (tenant = ''0'' AND (SELECT tenant()) <> ''''
                   AND EXISTS (SELECT FROM collection c WHERE c.tenant = ''0'' AND c.number = %1$I.collection))', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON field_value, field_count, field_word TO signalbox_app;

-- What is stored already. The owner reads every tenant's documents here, and only here.
ALTER TABLE document NO FORCE ROW LEVEL SECURITY;
ALTER TABLE field_value NO FORCE ROW LEVEL SECURITY;
ALTER TABLE field_count NO FORCE ROW LEVEL SECURITY;
ALTER TABLE field_word NO FORCE ROW LEVEL SECURITY;
WITH held AS MATERIALIZED (
    SELECT DISTINCT d.tenant, d.collection, d.id, entry.key AS field, item.value,
           CASE WHEN jsonb_typeof(item.value) = 'number' THEN (item.value #>> '{}')::double precision END AS number
    FROM document d, jsonb_each(d.fields) AS entry, LATERAL jsonb_path_query(entry.value, '$[*]') AS item (value)
    WHERE NOT (entry.key = 'id' AND entry.value = to_jsonb(d.id))
      AND NOT (entry.key = 'title' AND entry.value = to_jsonb(d.title))),
texts AS MATERIALIZED (
    SELECT DISTINCT tenant, collection, id, field, number, coalesce(number::text, value #>> '{}') AS value FROM held),
counts AS (
    INSERT INTO field_count (tenant, collection, field, documents, kept, long)
    SELECT tenant, collection, field, count(DISTINCT id), count(DISTINCT value COLLATE "C") FILTER (WHERE length(value) <= 200),
           count(*) FILTER (WHERE length(value) > 200)
    FROM texts GROUP BY tenant, collection, field)
INSERT INTO field_value (tenant, collection, field, value, number, documents)
SELECT tenant, collection, field, value COLLATE "C", min(number), count(*)
FROM texts WHERE length(value) <= 200 GROUP BY tenant, collection, field, value COLLATE "C";
-- Folded as well as SQL can; the next ingestion into a collection folds its names properly.
INSERT INTO field_word (tenant, collection, words, place, field, value)
SELECT v.tenant, v.collection, array_to_string(words[place:], ' '), place - 1, v.field, v.value
FROM field_value v, LATERAL regexp_split_to_array(trim(lower(v.value)), '[-_\s]+') AS words, generate_subscripts(words, 1) AS place
WHERE v.number IS NULL AND v.value !~ '^\d{4}-\d\d-\d\d' AND length(v.value) <= 100 AND cardinality(words) <= 8;
ALTER TABLE document FORCE ROW LEVEL SECURITY;
ALTER TABLE field_value FORCE ROW LEVEL SECURITY;
ALTER TABLE field_count FORCE ROW LEVEL SECURITY;
ALTER TABLE field_word FORCE ROW LEVEL SECURITY;

CREATE OR REPLACE FUNCTION refresh_statistics() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    ANALYZE collection, document, chunk, term, field_value, field_count, field_word;
END $$;
