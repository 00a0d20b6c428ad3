"""What a worker does besides jobs: heartbeat, chores, schedules, progress."""
