"""Charts that the server draws as SVG: spans of time, axes, and curves."""
