"""What this machine has left: memory, GPU memory, disk. Whatever cannot be found out is None."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

__all__ = ["disk_free", "gpu_free", "memory_free", "memory_held", "peak_memory"]

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def memory_free(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return the bytes of memory that can be had: of the machine, or of its group if less."""
    found = [_field(proc / "meminfo", "MemAvailable"), _group_free(proc, cgroups)]
    known = [size for size in found if size is not None]
    if not known and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS: what it has, not what is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(known, default=None)


def memory_held(proc: Path = PROC) -> int:
    """Return the bytes of memory that this process holds; 0 where it cannot be found out."""
    return _field(proc / "self" / "status", "VmRSS") or 0


def peak_memory(proc: Path = PROC) -> int:
    """Return the most bytes of memory that this process has held; 0: unknown."""
    return _field(proc / "self" / "status", "VmHWM") or 0


def gpu_free() -> int:
    """Return the bytes of GPU memory that can be had, what PyTorch keeps in store included."""
    stored = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + stored


def disk_free(path: Path) -> int | None:
    """Return the bytes of disk that can be had at a path, which need not exist yet."""
    absolute = path.absolute()
    for folder in (absolute, *absolute.parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


def _field(file: Path, name: str) -> int | None:
    """Return the bytes that a line "name: … kB" says."""
    for line in _text(file).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return None


def _group_free(proc: Path, cgroups: Path) -> int | None:
    """Return what the control groups of this process leave; files of cached data do not count."""
    found = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, kinds, name = line.split(":", 2)
        if kinds == "":
            top, names = cgroups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            top = cgroups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        here = top / name.lstrip("/")
        # Inside a container the group's own name may lead nowhere: the top is what it sees.
        for folder in {here, *(p for p in here.parents if p.is_relative_to(top)), top}:
            limit, used = (_text(folder / file).strip() for file in names[:2])
            if limit.isdigit() and used.isdigit():
                cached = _counter(folder / "memory.stat", names[2])
                found.append(max(0, int(limit) - int(used) + cached))
    return min(found, default=None)


def _counter(file: Path, name: str) -> int:
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(words[1]) for words in lines if words[0] == name), 0)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
