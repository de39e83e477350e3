"""Bytes as a user writes and reads them: 4GiB."""

import re

from nscaching.errors import UserError, flag

UNITS = {"b": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40}


def readable(count: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):,.1f} {unit}"
    return f"{count / 1024:,.1f} KiB"


def read_bytes(text: str, named: str) -> int:
    """Return the number of bytes that a text such as 4GiB says; ``named`` is its parameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b", text.strip().casefold())
    if not found or float(found[1]) == 0:
        raise UserError(f"{flag(named)}: expected bytes with a unit, such as 4GiB, not {text!r}")
    unit = (found[2] or "").removesuffix("i")
    # MB is taken for MiB: whoever limits memory means the powers of two that tools show.
    return round(float(found[1]) * (1 << UNITS[f"{unit}ib" if unit else "b"]))


def read_budget(text: str, named: str) -> int | float:
    """Return a number of bytes, or a share such as 25% as a float above 0 and at most 1."""
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if share and 0 < float(share[1]) <= 100:
        return float(share[1]) / 100
    try:
        return read_bytes(text, named)
    except UserError:
        expected = "expected bytes with a unit, such as 4GiB, or a share, such as 25%"
        raise UserError(f"{flag(named)}: {expected}, not {text!r}") from None
