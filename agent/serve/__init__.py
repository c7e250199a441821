"""The front ends: commands, HTTP requests and MCP calls go in; answers of the service come out."""
