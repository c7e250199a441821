"""Options takes the text of a setting or of a request option and returns its checked value."""
