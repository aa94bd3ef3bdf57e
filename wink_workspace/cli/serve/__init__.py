"""The commands that serve other programs: MCP, ACP and the web pages."""
