"""Collections that follow a source: what the sources have, what was stored of it, and the run that makes both equal."""
