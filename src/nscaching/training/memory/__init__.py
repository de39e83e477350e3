"""How much a training needs of what the machine has: computed from its settings beforehand."""

from nscaching.training.memory.fitting import advice, check, refusal
from nscaching.training.memory.plan import Plan
from nscaching.training.memory.statement import Item, Statement, readable, state

__all__ = ["Item", "Plan", "Statement", "advice", "check", "readable", "refusal", "state"]
