-- Sources that are followed no more: what is left of them is known until another source has taken it over.

ALTER TABLE sync ADD COLUMN forgotten_at timestamptz, ADD COLUMN heard_at timestamptz;
COMMENT ON COLUMN sync.forgotten_at IS 'since when it is followed no more; its documents stay, and are those of no item';
COMMENT ON COLUMN sync.heard_at IS 'when a worker last said that its settings hold the schedule';
ALTER TABLE sync_document ADD COLUMN former uuid;
COMMENT ON COLUMN sync_document.former IS 'the source that it was taken over from; null where it came with its own';

-- Which documents were written or deleted while their collection is made anew, so that the switch reads these alone,
-- however many documents there are. No foreign key: writers would wait for who locks the shadow.
CREATE TABLE changed (
    tenant text NOT NULL,
    collection integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    changed_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (tenant, collection, id)
);
COMMENT ON TABLE changed IS 'documents that are to be copied once more into the collection under construction';
COMMENT ON COLUMN changed.collection IS 'number of the shadow';
COMMENT ON COLUMN changed.changed_by IS 'the last transaction: another one than was read means that it has changed since';
CREATE INDEX changed_order ON changed (tenant, collection, changed_by, id);
ALTER TABLE changed ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON changed TO signalbox_app
    USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON changed TO signalbox_app;

-- Who writes documents holds the lock of their collection, and a shadow is made under it: none is missed.
CREATE FUNCTION note_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
REVOKE ALL ON FUNCTION note_changed FROM PUBLIC;
CREATE TRIGGER noted_new AFTER INSERT ON document REFERENCING NEW TABLE AS touched
    FOR EACH STATEMENT EXECUTE FUNCTION note_changed();
CREATE TRIGGER noted_update AFTER UPDATE ON document REFERENCING NEW TABLE AS touched
    FOR EACH STATEMENT EXECUTE FUNCTION note_changed();
CREATE TRIGGER noted_gone AFTER DELETE ON document REFERENCING OLD TABLE AS touched
    FOR EACH STATEMENT EXECUTE FUNCTION note_changed();
COMMENT ON COLUMN job.rebuild IS 'what it makes of the collection: {"embedder": name, null for the one it has, "at": how far it is}; null for an ingestion';
