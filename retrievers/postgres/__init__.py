"""PostgreSQL: the embedded server, migrations, the connection pool, and reads of stored documents."""
