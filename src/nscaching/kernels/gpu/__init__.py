"""Kernels compiled by Triton; ``triton_kernels`` calls them."""
