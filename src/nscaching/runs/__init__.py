"""Training runs: what stays of a training, in memory and on disk."""
