-- The role of the SQL source: whatever a statement holds, it runs as this one and reads documents alone,
-- through policies of its own. What is not granted here (texts, passages, terms, the searches, which take
-- a scope as an argument) it cannot name.
GRANT USAGE ON SCHEMA signalbox TO signalbox_sql;
GRANT SELECT (tenant, collection, id, title, url, fields, language, public, expires_at, created_at, updated_at)
    ON document TO signalbox_sql;
-- The policies call these; they answer with the signed tenant, and with an error without one.
GRANT EXECUTE ON FUNCTION tenant, verified_tenant TO signalbox_sql;

CREATE POLICY sql_own ON document FOR SELECT TO signalbox_sql USING (tenant = (SELECT tenant()));
CREATE POLICY sql_platform ON document FOR SELECT TO signalbox_sql
    USING (tenant = '0' AND public AND (SELECT tenant()) <> '');
