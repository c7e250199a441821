"""Development tools, run from a checkout. The wheel does not hold them."""
