"""Kernels compiled by Triton; ``gpu.kernels`` calls them."""
