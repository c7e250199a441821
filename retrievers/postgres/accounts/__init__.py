"""Take a tenant: return its keys, settings, quotas and feedback, and the figures of its evaluations."""
