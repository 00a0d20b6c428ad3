"""Upkeep of a worker: heartbeat, chores, schedules, progress."""
