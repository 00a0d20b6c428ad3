"""Runner processes: start them, hand jobs to them, judge how they end."""
