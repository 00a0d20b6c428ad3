"""Flow control: breakers, limits and schedules."""
