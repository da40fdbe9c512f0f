"""The MCP server: relay's verbs as tools for an agent, or for a program of the user (docs/MCP.md)."""
