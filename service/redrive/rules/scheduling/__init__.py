"""Rules for when and where jobs run: slots, limits, cells."""
