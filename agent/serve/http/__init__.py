"""The HTTP API: the contract's endpoints on FastAPI, one module per family of routes."""
