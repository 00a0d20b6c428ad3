"""The MCP server: agents look at dead letters and propose changes, and do nothing else."""
