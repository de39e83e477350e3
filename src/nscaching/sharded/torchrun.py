"""What torchrun tells a process in its environment. Needs no PyTorch."""

import os


def is_launched() -> bool:
    """Say whether torchrun started this process as one of several."""
    sizes = os.environ.get("WORLD_SIZE", "1"), os.environ.get("TORCHELASTIC_RUN_ID", "")
    return sizes[0].isdigit() and int(sizes[0]) > 1 and sizes[1] != ""


def follows() -> bool:
    """Say whether another process speaks for this one."""
    return is_launched() and os.environ.get("RANK") != "0"


def restarts() -> tuple[int, int]:
    """Return how often torchrun has restarted the processes, and how often it may."""
    names = "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"
    count, most = (int(os.environ.get(name, "0")) for name in names)
    return count, most
