"""What the console shows: pages, live views, streams and the API."""
