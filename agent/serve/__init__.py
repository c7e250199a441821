"""The front ends of the service: command line, HTTP and MCP."""
