"""What torchrun tells a process in its environment. Needs no PyTorch."""

import os

from nscaching.errors import UserError

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """Say whether torchrun, or what else sets its variables, started several processes."""
    return all(name in os.environ for name in NEEDED) and os.environ["WORLD_SIZE"] != "1"


def follows() -> bool:
    """Say whether another process speaks for this one."""
    return is_launched() and os.environ.get("RANK") != "0"


def restarts() -> tuple[int, int]:
    """Return how often torchrun has restarted the processes, and how often it may."""
    return number("TORCHELASTIC_RESTART_COUNT", 0), number("TORCHELASTIC_MAX_RESTARTS", 0)


def number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isascii() or not text.isdigit():
        raise UserError(f"the environment variable {name} is no number: {text!r}")
    return int(text)
