"""Training: the loop, and what surrounds the loop."""
