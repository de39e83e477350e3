"""What a graph holds that spoils a benchmark or a training, and how to clean it."""

from nscaching.audit.cleaning import Cleaned, clean, save
from nscaching.audit.result import Audit, audit

__all__ = ["Audit", "Cleaned", "audit", "clean", "save"]
