"""Pictures of the console's pages during an incident."""
