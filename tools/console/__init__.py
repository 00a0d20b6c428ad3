"""Pictures of the console's pages, in the middle of an incident."""
