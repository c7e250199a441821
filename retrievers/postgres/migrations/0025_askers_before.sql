-- Whose what was kept before 0020 is, as far as that can be known: by the request of a trace, by the record of the same
-- answer, and of a turn by the question in the same conversation. What stays unknown expires as it always did.
--
-- Nobody is kept waiting: the rows are updated as the service updates its own, a tenant at a time, which locks these
-- rows alone.

-- Taken back below.
GRANT UPDATE (asker, conversation) ON trace TO signalbox_app;

DO $$
DECLARE
    myself text := current_setting('role');
    name text;
    who text;
    tenants text[] := '{}';
BEGIN
    -- Row security hides all tenants from the owner. That this is lifted is undone at once, with the locks that it took.
    BEGIN
        FOREACH name IN ARRAY ARRAY['exchange', 'trace', 'message', 'feedback'] LOOP
            EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY', name);
            EXECUTE format($list$
                WITH RECURSIVE one AS (
                    SELECT min(tenant) AS tenant FROM %1$I
                    UNION ALL
                    SELECT (SELECT min(t.tenant) FROM %1$I t WHERE t.tenant > one.tenant)
                    FROM one WHERE one.tenant IS NOT NULL)
                SELECT $1 || array_agg(tenant) FROM one WHERE tenant IS NOT NULL AND tenant <> ALL ($1)
            $list$, name) INTO tenants USING tenants;
        END LOOP;
        RAISE EXCEPTION SQLSTATE 'SB025';
    EXCEPTION WHEN SQLSTATE 'SB025' THEN
        NULL;
    END;

    FOREACH who IN ARRAY tenants LOOP
        PERFORM set_config('signalbox.scope', encode(sha256(key || convert_to(who || E'\n*', 'UTF8') || key), 'hex')
                                              || ':' || who || E'\n*', true) FROM secret;
        PERFORM set_config('role', 'signalbox_app', true);

        UPDATE trace t SET asker = known.asker, conversation = known.conversation
        FROM (SELECT old.id, coalesce(old.asker, old.request ->> 'user', e.asker) AS asker,
                     coalesce(old.conversation, old.request ->> 'conversation', e.conversation) AS conversation
              FROM trace old LEFT JOIN (
                  SELECT DISTINCT ON (x.trace) x.trace, x.asker, x.conversation FROM exchange x
                  WHERE x.tenant = who AND x.trace IS NOT NULL ORDER BY x.trace, x.created_at) e ON e.trace = old.id
              WHERE old.tenant = who AND (old.asker IS NULL OR old.conversation IS NULL)) known
        WHERE t.tenant = who AND t.id = known.id
          AND (t.asker, t.conversation) IS DISTINCT FROM (known.asker, known.conversation);
        LOOP  -- a replay may have been replayed
            UPDATE trace t SET asker = coalesce(t.asker, first.asker),
                               conversation = coalesce(t.conversation, first.conversation)
            FROM trace first
            WHERE t.tenant = who AND first.tenant = who AND first.id = (t.record ->> 'replay_of')::uuid
              AND (t.asker IS NULL AND first.asker IS NOT NULL
                   OR t.conversation IS NULL AND first.conversation IS NOT NULL);
            EXIT WHEN NOT FOUND;
        END LOOP;

        UPDATE feedback f SET asker = known.asker, conversation = known.conversation
        FROM (SELECT old.trace, coalesce(old.asker, t.asker, e.asker) AS asker,
                     coalesce(old.conversation, t.conversation, e.conversation) AS conversation
              FROM feedback old LEFT JOIN trace t ON t.tenant = who AND t.id = old.trace
              LEFT JOIN (
                  SELECT DISTINCT ON (x.trace) x.trace, x.asker, x.conversation FROM exchange x
                  WHERE x.tenant = who AND x.trace IS NOT NULL ORDER BY x.trace, x.created_at) e ON e.trace = old.trace
              WHERE old.tenant = who AND (old.asker IS NULL OR old.conversation IS NULL)) known
        WHERE f.tenant = who AND f.trace = known.trace
          AND (f.asker, f.conversation) IS DISTINCT FROM (known.asker, known.conversation);

        -- Turns that were added together have one moment, and end with the question and its answer. Of several that
        -- asked the same in one conversation it is who was answered nearest to that moment.
        UPDATE message m SET asker = known.asker
        FROM (SELECT DISTINCT ON (said.conversation, said.created_at) said.conversation, said.created_at, asked.asker
              FROM (SELECT DISTINCT ON (q.conversation, q.created_at) q.conversation, q.created_at, q.content
                    FROM message q WHERE q.tenant = who AND q.role = 'user' AND q.asker IS NULL
                    ORDER BY q.conversation, q.created_at, q.number DESC) said
              JOIN (SELECT array_to_string(x.conversation || x.principals, E'\n') AS conversation, x.question, x.asker,
                           coalesce(x.ended_at, x.created_at) AS at
                    FROM exchange x WHERE x.tenant = who AND x.conversation IS NOT NULL
                    UNION ALL
                    SELECT array_to_string(t.conversation || t.principals, E'\n'),
                           coalesce(t.request ->> 'query', t.request #>> '{messages,-1,content}'), t.asker, t.created_at
                    FROM trace t WHERE t.tenant = who AND t.conversation IS NOT NULL
                      AND t.record ->> 'replay_of' IS NULL) asked
                ON asked.conversation = said.conversation AND asked.question = said.content
              ORDER BY said.conversation, said.created_at,
                       abs(extract(epoch FROM asked.at - said.created_at)), asked.asker) known
        WHERE m.tenant = who AND m.conversation = known.conversation AND m.created_at = known.created_at
          AND m.asker IS NULL AND known.asker IS NOT NULL;

        PERFORM set_config('role', myself, true);
    END LOOP;
    PERFORM set_config('signalbox.scope', '', true);
END $$;

REVOKE UPDATE (asker, conversation) ON trace FROM signalbox_app;
