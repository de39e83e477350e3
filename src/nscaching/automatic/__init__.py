"""The best of several models within a time limit: ``nscaching auto``."""

from nscaching.automatic.result import Auto
from nscaching.automatic.search import auto

__all__ = ["Auto", "auto"]
