"""Shared parts of commands: options, output, connections and exit codes."""
