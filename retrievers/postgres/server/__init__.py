"""Take a folder or a connection string: return the address of a running server with the service's schema and roles."""
