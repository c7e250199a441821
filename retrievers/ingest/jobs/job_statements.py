"""The SQL statements of the job queue. `%(token)s` is the lease that a worker must still hold."""

# The server may be configured to acknowledge before writing to disk. A stricter setting, as with replication, is kept.
DURABLE = """
    SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
COUNT_UNFINISHED = "SELECT count(*) FROM signalbox.job WHERE tenant = %s AND status IN ('queued', 'running')"
INSERT = """
    INSERT INTO signalbox.job (tenant, id, collection, file, payload, documents, status, lease, free_at, started_at)
    VALUES (%(tenant)s, %(id)s, %(collection)s, %(file)s, %(payload)s, %(documents)s,
            CASE WHEN %(token)s::uuid IS NULL THEN 'queued' ELSE 'running' END, %(token)s,
            CASE WHEN %(token)s::uuid IS NULL THEN now() ELSE now() + make_interval(secs => %(seconds)s) END,
            CASE WHEN %(token)s::uuid IS NULL THEN NULL ELSE now() END)
"""
LEASE_NEXT = "SELECT tenant, id, lease FROM signalbox.take_job(%s, %s, %s, %s)"
LOAD = """
    SELECT collection, delivery, file, payload, documents, tries, deaths, parked, rebuild, done, sync
    FROM signalbox.job WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
PARK = """
    UPDATE signalbox.job SET parked = array_append(parked, in_hand), in_hand = NULL
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s AND in_hand IS NOT NULL
"""
DEAD_LETTERS = """
    SELECT index, payload FROM signalbox.dead_letter WHERE tenant = %s AND job = %s ORDER BY index
"""
RENEW_LEASE = """
    UPDATE signalbox.job SET free_at = now() + make_interval(secs => %(seconds)s), done = %(done)s, failed = %(failed)s
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
MARK_IN_PROGRESS = """
    UPDATE signalbox.job SET in_hand = %(index)s WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
RECORD_BATCH = """
    UPDATE signalbox.job
    SET inserted = inserted + %(inserted)s, updated = updated + %(updated)s, done = %(done)s,
        failed = %(failed)s
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
FINISH = """
    UPDATE signalbox.job
    SET status = CASE WHEN %(error)s::text IS NULL THEN 'done' ELSE 'failed' END,
        lease = NULL, in_hand = NULL, error = %(error)s, documents = %(documents)s, done = %(documents)s,
        failed = %(failed)s, payload = CASE WHEN %(keep)s THEN payload END, finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
DELETE_DEAD_LETTERS = "DELETE FROM signalbox.dead_letter WHERE tenant = %s AND job = %s"
INSERT_DEAD_LETTERS = """
    INSERT INTO signalbox.dead_letter (tenant, job, index, place, document_id, reason, payload, readers)
    SELECT %(tenant)s, %(id)s, index, place, document, reason, payload,
           CASE WHEN readers IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(readers::jsonb)) END
    FROM unnest(%(indexes)s::integer[], %(places)s::text[], %(documents)s::text[], %(reasons)s::text[],
                %(payloads)s::bytea[], %(readers)s::text[]) AS failed (index, place, document, reason, payload, readers)
"""
SWEEP = """
    DELETE FROM signalbox.job WHERE tenant = %s AND id IN (
        SELECT id FROM signalbox.job WHERE tenant = %s AND expires_at <= now() ORDER BY expires_at LIMIT %s
        FOR UPDATE SKIP LOCKED)
"""
FAIL = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = %(reason)s, finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
CANCEL_COLLECTION_JOBS = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = 'the collection was deleted', finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND status IN ('queued', 'running')
"""
CLEAR_PAYLOADS = """
    UPDATE signalbox.job SET payload = NULL
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND payload IS NOT NULL
"""
CLEAR_DEAD_LETTERS = """
    UPDATE signalbox.dead_letter l SET payload = NULL FROM signalbox.job j
    WHERE j.tenant = %(tenant)s AND j.collection = %(collection)s AND (l.tenant, l.job) = (j.tenant, j.id)
      AND l.payload IS NOT NULL AND (%(documents)s::text[] IS NULL OR l.document_id = ANY (%(documents)s))
"""
REQUEUE = """
    UPDATE signalbox.job
    SET status = 'queued', lease = NULL, free_at = now() + make_interval(secs => %(seconds)s),
        tries = tries + %(tried)s, in_hand = NULL, error = %(reason)s
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
# Limits the counts of a rebuild for a viewer who may not read all documents.
JOB_VIEW = """
    SELECT id, collection, file, status,
           CASE WHEN seen.most IS NULL THEN j.documents ELSE least(j.documents, seen.most) END,
           CASE WHEN seen.most IS NULL THEN done ELSE least(done, seen.most) END, inserted, updated,
           CASE WHEN rebuild IS NULL THEN greatest(done - inserted - updated - failed, 0) ELSE 0 END, failed, deleted,
           error, replace(sync::text, '-', ''),
           CASE WHEN status = 'queued' AND error IS NOT NULL THEN free_at END, created_at, started_at, finished_at,
           CASE WHEN rebuild IS NULL THEN 'ingest' WHEN rebuild ->> 'embedder' IS NULL THEN 'rebuild'
                ELSE 'reembed' END,
           rebuild ->> 'embedder'
    FROM signalbox.job j LEFT JOIN LATERAL (
        SELECT coalesce(sum(c.documents), 0)::integer AS most FROM signalbox.collection c
        WHERE c.tenant = j.tenant AND (c.part_of IS NULL AND c.name = j.collection OR c.part_of IN (
            SELECT k.number FROM signalbox.collection k
            WHERE k.tenant = j.tenant AND k.name = j.collection AND k.part_of IS NULL))
        ) seen ON j.rebuild IS NOT NULL AND (SELECT signalbox.principals()) <> '{*}'
"""
JOB = JOB_VIEW + "WHERE tenant = %s AND id = %s AND (expires_at IS NULL OR expires_at > now())"
UNFINISHED_REBUILD = (
    JOB_VIEW
    + """
    WHERE tenant = %s AND collection = %s AND rebuild IS NOT NULL AND status IN ('queued', 'running') LIMIT 1
"""
)
REBUILDS = """
    SELECT id, rebuild ->> 'embedder' FROM signalbox.job
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND rebuild IS NOT NULL
      AND status IN ('queued', 'running')
"""
INSERT_REBUILD = """
    INSERT INTO signalbox.job (tenant, id, collection, documents, status, rebuild)
    SELECT %(tenant)s, %(id)s, %(collection)s, sum(documents)::integer, 'queued',
           jsonb_build_object('embedder', %(embedder)s::text)
    FROM signalbox.collection WHERE tenant = %(tenant)s AND %(number)s IN (number, part_of)
"""
RETIRE_SHADOW = """
    UPDATE signalbox.collection SET name = name || '/' || number, retired_at = now()
    WHERE tenant = %(tenant)s AND built_by = %(id)s AND shadow_of IS NOT NULL AND retired_at IS NULL
"""
CANCEL_JOB = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = 'cancelled', finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND id = %(id)s AND (rebuild IS NOT NULL OR sync IS NOT NULL)
      AND status IN ('queued', 'running')
"""
RECORD_REBUILD_PROGRESS = """
    UPDATE signalbox.job SET done = %(done)s, documents = %(documents)s, tries = 0, deaths = 0, error = NULL
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
PAUSE_REBUILD = """
    UPDATE signalbox.job
    SET status = 'queued', lease = NULL, free_at = now(), delivery = nextval('signalbox.delivery'),
        rebuild = rebuild || jsonb_build_object('at', %(at)s::jsonb)
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
RECENT = JOB_VIEW + "WHERE tenant = %s AND (expires_at IS NULL OR expires_at > now()) ORDER BY delivery DESC LIMIT %s"
FAILURES = """
    SELECT index, place, document_id, reason, failed_at FROM signalbox.dead_letter
    WHERE tenant = %s AND job = %s ORDER BY index
"""
RETRY = """
    UPDATE signalbox.job j
    SET status = 'queued', free_at = now(), tries = 0, deaths = 0, in_hand = NULL, parked = '{}', error = NULL,
        done = done - failed, failed = 0, finished_at = NULL, expires_at = NULL
    WHERE tenant = %s AND id = %s AND expires_at > now() AND (status = 'failed' OR (status = 'done' AND failed > 0))
      AND (payload IS NOT NULL OR rebuild IS NOT NULL OR EXISTS (SELECT FROM signalbox.dead_letter l
                                          WHERE (l.tenant, l.job) = (j.tenant, j.id) AND l.payload IS NOT NULL))
"""
