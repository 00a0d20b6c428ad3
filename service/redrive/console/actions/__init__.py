"""What the console changes: a preview that counts, then the change."""
