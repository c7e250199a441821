"""The doors: the command line."""
