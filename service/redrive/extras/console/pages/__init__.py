"""Routes of the console: pages, forms, event streams and the JSON API."""
