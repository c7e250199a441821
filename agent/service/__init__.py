"""Service takes settings and returns the open service, with the rules and quotas of its tenants."""
