"""`redrive reencrypt`: seal what is stored with the current key."""
