"""The MCP server: tool calls and resource reads go in; validated answers of the service come out."""
