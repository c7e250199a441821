"""The SQL statements of the manifest of a mirror."""

from typing import LiteralString

KNOWN_ITEMS = "SELECT item, version, digest FROM signalbox.sync_item WHERE tenant = %(tenant)s AND sync = %(sync)s"
DAMAGED = """
    SELECT m.item, m.document_id FROM signalbox.sync_document m
    LEFT JOIN signalbox.collection c ON c.tenant = m.tenant AND c.name = m.collection AND c.part_of IS NULL
    LEFT JOIN signalbox.document d ON d.tenant = m.tenant AND d.collection = c.number AND d.id = m.document_id
    WHERE m.tenant = %(tenant)s AND m.sync = %(sync)s AND m.item IS NOT NULL
      AND (m.digest IS NULL OR d.digest IS DISTINCT FROM m.digest)
"""
DOCUMENTS_OF = """
    SELECT document_id FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
_NO_ITEM = "FROM signalbox.sync_document WHERE tenant = %(tenant)s AND sync = %(sync)s AND item IS NULL"
ORPHANS = f"SELECT document_id {_NO_ITEM}"
COUNT_ORPHANS: LiteralString = f"SELECT count(*) {_NO_ITEM}"
DOCUMENT_COUNTS = """
    SELECT (SELECT count(*) FROM signalbox.sync_document m WHERE m.tenant = s.tenant AND m.sync = s.id), s.documents
    FROM signalbox.sync s WHERE s.tenant = %(tenant)s AND s.id = %(sync)s
"""
OWNERS = """
    SELECT document_id, sync, item, run, given FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND document_id = ANY (%(ids)s)
    ORDER BY document_id FOR UPDATE
"""
CLAIM = """
    INSERT INTO signalbox.sync_document AS m (tenant, collection, document_id, sync, item, run, given)
    SELECT %(tenant)s, %(collection)s, id, %(sync)s, item, %(run)s, given
    FROM unnest(%(ids)s::text[], %(items)s::text[], %(given)s::bytea[]) AS new (id, item, given) ORDER BY id
    ON CONFLICT (tenant, collection, document_id) DO UPDATE
    SET sync = excluded.sync, item = excluded.item, run = excluded.run, given = excluded.given,
        former = CASE WHEN m.sync = excluded.sync THEN m.former ELSE m.sync END,
        digest = CASE WHEN m.sync = excluded.sync AND m.given = excluded.given THEN m.digest END
"""
READ_AGAIN = """
    UPDATE signalbox.sync_item SET version = NULL, digest = NULL
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
ORPHAN_ITEMS = """
    UPDATE signalbox.sync_document SET item = NULL
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
FORGET_ITEMS = """
    DELETE FROM signalbox.sync_item WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
DROP_FAILED = """
    DELETE FROM signalbox.sync_document m
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND sync = %(sync)s AND document_id = ANY (%(failed)s)
      AND NOT EXISTS (SELECT FROM signalbox.document d JOIN signalbox.collection c
                        ON c.tenant = d.tenant AND c.number = d.collection
                      WHERE d.tenant = m.tenant AND c.name = m.collection AND d.id = m.document_id)
"""
ORPHAN_FAILED = """
    UPDATE signalbox.sync_document SET item = NULL
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND sync = %(sync)s AND document_id = ANY (%(failed)s)
"""
ORPHAN_UNSEEN = """
    UPDATE signalbox.sync_document m SET item = NULL
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(ended)s) AND run < %(run)s
      AND (document_id, item) NOT IN (SELECT * FROM unnest(%(ids)s::text[], %(items)s::text[]))
"""
RECORD_DIGESTS = """
    UPDATE signalbox.sync_document m SET digest = d.digest
    FROM signalbox.document d JOIN signalbox.collection c ON c.tenant = d.tenant AND c.number = d.collection
    WHERE m.tenant = %(tenant)s AND m.collection = %(collection)s AND m.sync = %(sync)s
      AND m.document_id = ANY (%(ids)s) AND d.tenant = m.tenant AND c.name = m.collection AND c.part_of IS NULL
      AND d.id = m.document_id AND d.delivery <= %(delivery)s
"""
RECORD_ITEMS = """
    INSERT INTO signalbox.sync_item (tenant, sync, item, version, digest)
    SELECT %(tenant)s, %(sync)s, item, version, digest
    FROM unnest(%(items)s::text[], %(versions)s::text[], %(digests)s::bytea[]) AS new (item, version, digest)
    ON CONFLICT (tenant, sync, item) DO UPDATE SET version = excluded.version, digest = excluded.digest
"""
RESET_TRIES = "UPDATE signalbox.job SET tries = 0, deaths = 0 WHERE tenant = %(tenant)s AND id = %(id)s"
COUNT_DELETED = "UPDATE signalbox.job SET deleted = deleted + %(count)s WHERE tenant = %(tenant)s AND id = %(id)s"
SELECT_ORPHANS = """
    SELECT document_id FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item IS NULL ORDER BY document_id LIMIT %(most)s FOR UPDATE
"""
DELETE = """
    DELETE FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND document_id = ANY (%(ids)s)
"""
COLLECTION_NUMBER = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND name = %(collection)s AND part_of IS NULL
"""
FINISH_RUN = """
    UPDATE signalbox.sync s SET documents = (
        SELECT count(*) FROM signalbox.sync_document m WHERE m.tenant = s.tenant AND m.sync = s.id)
    WHERE s.tenant = %(tenant)s AND s.id = %(sync)s RETURNING s.documents
"""
RESET_ITEMS = """
    UPDATE signalbox.sync_item i SET version = NULL, digest = NULL FROM signalbox.sync_document m
    WHERE m.tenant = %(tenant)s AND m.collection = %(collection)s
      AND (%(document)s::text IS NULL OR m.document_id = %(document)s)
      AND i.tenant = m.tenant AND i.sync = m.sync AND i.item = m.item
"""
FORGET_DOCUMENTS = """
    DELETE FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND collection = %(collection)s
      AND (%(document)s::text IS NULL OR document_id = %(document)s)
"""
