"""Groups of dead letters by cause, their owners, and acknowledgements."""
