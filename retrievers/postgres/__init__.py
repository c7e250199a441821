"""PostgreSQL: the embedded server, migrations, and the one way to a connection."""
