"""The memory, GPU memory and disk that this machine has available; None: unknown."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


def memory_available(
    proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the bytes of memory that the machine has, or its control group if fewer."""
    found = list(_left_by_groups(proc, cgroups))
    if kilobytes := _number(proc / "meminfo", "MemAvailable"):
        found.append(kilobytes << 10)
    if not found and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: installed, not available
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(found, default=None)


def memory_held(field: str = "VmRSS") -> int:
    """Return the bytes of memory that this process holds, or held at most (VmHWM); 0: unknown."""
    return (_number(Path("/proc/self/status"), field) or 0) << 10


def gpu_available() -> int:
    """Return the bytes of GPU memory, including what PyTorch holds unused."""
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + unused


def disk_available(path: Path) -> int | None:
    """Return the bytes of disk at a path that need not exist yet."""
    for folder in (path.absolute(), *path.absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None


def _left_by_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield what the control groups of this process leave; cached files count as available."""
    groups = re.findall(r"^\d+:([^:]*):/(.*)$", _text(proc / "self" / "cgroup"), re.MULTILINE)
    for kinds, name in groups:
        top, names = cgroups, ("memory.max", "memory.current", "inactive_file")
        if "memory" in kinds.split(","):  # version 1
            top = cgroups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        # The limits of the groups above count too. In a container the name may lead nowhere.
        for folder in {top, top / name, *(top / name).parents}:
            limit, used = (_number(folder / file) for file in names[:2])
            if limit is not None and used is not None:
                yield max(0, limit - used + (_number(folder / "memory.stat", names[2]) or 0))


def _number(file: Path, name: str = "") -> int | None:
    """Return the number behind a name that starts a line; without a name, the first number."""
    found = re.search(rf"^{name}:?\s*(\d+)", _text(file), re.MULTILINE)
    return int(found[1]) if found else None


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="ascii", errors="replace")
    return ""
