"""Routes of the console: pages, forms and the JSON API."""
