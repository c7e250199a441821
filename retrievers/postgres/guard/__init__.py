"""Take an untrusted statement: return the text that may run, or the reason why it is refused."""
