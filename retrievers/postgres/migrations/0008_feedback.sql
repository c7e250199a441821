-- What people thought of answers, and of which documents that says something.
--
-- A tenant's feedback is its own, also about the platform's documents: there is no policy for the platform.

CREATE TABLE feedback (
    tenant text NOT NULL CHECK (tenant <> ''),
    trace uuid NOT NULL,
    score smallint NOT NULL CHECK (score BETWEEN 0 AND 10),
    comment text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, trace)
);
COMMENT ON TABLE feedback IS 'one judgement per answer, the last one given';

CREATE TABLE feedback_document (
    tenant text NOT NULL,
    collection integer NOT NULL,
    document_id text NOT NULL COLLATE "C",
    trace uuid NOT NULL,
    share real NOT NULL,
    PRIMARY KEY (tenant, collection, document_id, trace),
    FOREIGN KEY (tenant, trace) REFERENCES feedback ON DELETE CASCADE
);
COMMENT ON COLUMN feedback_document.share IS 'how much of the judgement falls on the document: 1 on the first hit, less on later ones';
CREATE INDEX feedback_document_trace ON feedback_document (tenant, trace);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['feedback', 'feedback_document'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON feedback, feedback_document TO signalbox_app;
