-- Where in its file a text stands: the page, the slide, or the sheet and row of each part of it.

ALTER TABLE document ADD COLUMN places jsonb;
COMMENT ON COLUMN document.places IS 'unit (page, slide, row), sheet, and marks: the character where each begins and its number';
ALTER TABLE chunk ADD COLUMN places jsonb;
COMMENT ON COLUMN chunk.places IS 'those of the document that the passage touches; characters are the document''s';

-- A column more than before, which makes it another function.
DROP FUNCTION passages;
CREATE FUNCTION passages(scope text, tenants text[], among integer[], documents text[], ordinals integer[])
RETURNS TABLE (tenant text, collection integer, document_id text, ordinal integer, title text, body text, url text,
               heading text, start_character integer, end_character integer, metadata jsonb, gap text, fields jsonb,
               places jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
ALTER FUNCTION passages OWNER TO signalbox_search;
REVOKE ALL ON FUNCTION passages FROM PUBLIC;
GRANT EXECUTE ON FUNCTION passages TO signalbox_app;
