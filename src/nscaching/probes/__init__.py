"""What the paper measures while training; this room's settings need no PyTorch."""

from nscaching.probes.config import ProbeConfig

__all__ = ["ProbeConfig"]
