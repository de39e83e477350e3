"""How much a training needs of what the machine has: computed from its settings beforehand."""

from nscaching.memory.fitting import advice, check, refusal
from nscaching.memory.plan import Plan
from nscaching.memory.statement import Item, Statement, readable, state

__all__ = ["Item", "Plan", "Statement", "advice", "check", "readable", "refusal", "state"]
