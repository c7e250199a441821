"""Take every request before its handler: pass it on, identified, limited and observed, or answer with a problem."""
