"""Search for good hyperparameters by validation MRR: ``nscaching tune``."""

from nscaching.tuning.search import EPOCHS, Watch, check_search, tune

__all__ = ["EPOCHS", "Watch", "check_search", "tune"]
