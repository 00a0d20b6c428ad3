"""Deaths of runners: crashes, lack of memory, and limits on their jobs."""
