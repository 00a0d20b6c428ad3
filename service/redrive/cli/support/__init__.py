"""What commands share: options, output, connections and exit codes."""
