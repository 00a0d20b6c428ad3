"""Commands that run until they are stopped: worker, console, exporter and others."""
