"""Take statements and the viewer they run for: return their rows, from the primary or a standby."""
