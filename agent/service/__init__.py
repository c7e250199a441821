"""Service takes settings and returns an open service with the settings and quotas of each tenant."""
