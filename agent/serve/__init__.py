"""Serve takes a command, an HTTP request or an MCP call and returns the service's result in that form."""
