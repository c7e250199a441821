-- Conversations, and what was asked in chats.
--
-- A conversation's row is locked while turns are added, so that two at the same time get numbers of their own. A
-- record of a question is written before anything is done about it: one that stays "unanswered" died on the way.

CREATE TABLE conversation (
    tenant text NOT NULL CHECK (tenant <> ''),
    id text NOT NULL COLLATE "C" CHECK (id <> ''),
    messages integer NOT NULL DEFAULT 0,
    summary text,
    summarised integer NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);
COMMENT ON COLUMN conversation.messages IS 'number of the last message';
COMMENT ON COLUMN conversation.summarised IS 'number of the last message that the summary tells of';
CREATE INDEX conversation_expiry ON conversation (tenant, expires_at);

CREATE TABLE message (
    tenant text NOT NULL,
    conversation text NOT NULL COLLATE "C",
    number integer NOT NULL,
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    content text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, conversation, number),
    FOREIGN KEY (tenant, conversation) REFERENCES conversation ON DELETE CASCADE
);
COMMENT ON TABLE message IS 'turns of conversations, from 1 on; a question and its answer are added together';

CREATE TABLE exchange (
    tenant text NOT NULL CHECK (tenant <> ''),
    id uuid NOT NULL,
    conversation text COLLATE "C",
    asker text,
    question text NOT NULL,
    answer text,
    status text NOT NULL DEFAULT 'unanswered'
        CHECK (status IN ('unanswered', 'answered', 'refused', 'failed', 'abandoned')),
    trace uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);
COMMENT ON TABLE exchange IS 'questions of chats with their answers; feedback is about the trace';
CREATE INDEX exchange_time ON exchange (tenant, created_at DESC);
CREATE INDEX exchange_expiry ON exchange (tenant, expires_at);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['conversation', 'message', 'exchange'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY own ON %I TO signalbox_app USING (tenant = (SELECT tenant())) WITH CHECK (tenant = (SELECT tenant()))', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON conversation, message, exchange TO signalbox_app;
