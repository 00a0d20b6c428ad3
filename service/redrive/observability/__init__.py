"""What Redrive shows of itself: metrics, logs, traces, health."""
