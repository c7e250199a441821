-- What a document of a collection is called, as its schema declares: "upload", "uploads".
ALTER TABLE collection ADD COLUMN records text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN collection.records IS 'words for one of its documents, as declared';
