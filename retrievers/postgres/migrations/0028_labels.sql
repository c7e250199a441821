-- What a person says about an answer beside the score: documents that they opened or found right, and the right filter.
-- `signalbox eval collect` makes labelled questions of it. It is erased with the row.

ALTER TABLE feedback
    ALTER COLUMN score DROP NOT NULL,
    ADD COLUMN document_ids text[] NOT NULL DEFAULT '{}',
    ADD COLUMN filter jsonb;
COMMENT ON COLUMN feedback.score IS 'null while only documents or a filter were given';
COMMENT ON COLUMN feedback.document_ids IS 'of the collection asked: documents that the user opened or found right';
COMMENT ON COLUMN feedback.filter IS 'the right filter of the question; {} if no filter is right; null if nothing was said';
