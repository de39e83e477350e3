"""Training runs: their results in memory and on disk."""
