"""Loops compiled by Numba; ``numba_kernels`` calls them."""
