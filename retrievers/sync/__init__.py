"""Mirrors: collections that follow a source. Lists the source, compares it with the manifest, stores the difference."""
