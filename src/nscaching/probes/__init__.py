"""Probes: what the paper measures during training; their settings need no PyTorch."""

from nscaching.probes.config import ProbeConfig

__all__ = ["ProbeConfig"]
