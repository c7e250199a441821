-- Sources that are followed no more: what is left of them is known until another source has taken it over.

ALTER TABLE sync ADD COLUMN forgotten_at timestamptz, ADD COLUMN heard_at timestamptz;
COMMENT ON COLUMN sync.forgotten_at IS 'since when it is followed no more; its documents stay, and are those of no item';
COMMENT ON COLUMN sync.heard_at IS 'when a worker last said that its settings hold the schedule';
ALTER TABLE sync_document ADD COLUMN former uuid;
COMMENT ON COLUMN sync_document.former IS 'the source that it was taken over from; null where it came with its own';
