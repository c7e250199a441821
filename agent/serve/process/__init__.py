"""The server processes: a host, a port and the settings go in; accepted connections and an exit code come out."""
