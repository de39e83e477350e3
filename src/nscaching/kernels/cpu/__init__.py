"""Loops compiled by Numba; ``cpu.kernels`` calls them."""
