"""Fuzz every reader for some minutes: any bytes give a graph, or one clear line.

python tools/fuzz.py [--minutes 10] [--only NAME …] [--seed 0]

Prints how many inputs each reader got; the same seed makes the same ones. A failure is shown with
its input; what ended the process itself is the file that was written last, in the folder that is
named at the start.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import fuzzing

ROUND = 200
EXTRA_MEMORY = 2 << 30  # bytes that a reader may take beyond what the libraries do


def main() -> None:
    """Go round the readers until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("error")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    print(f"files are written to {folder}", flush=True)
    readers = [r for r in fuzzing.readers(folder) if not asked.only or r.name in asked.only]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + EXTRA_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tried = {reader.name: [0, 0] for reader in readers}
    end, number = time.monotonic() + 60 * asked.minutes, asked.seed
    while time.monotonic() < end:
        for reader in readers:
            one_round(reader, number, tried[reader.name])
        number += 1
    print("| reader | inputs | read | refused in one line |\n|---|---|---|---|")
    rows = [*tried.items(), ("all", [sum(counts) for counts in zip(*tried.values(), strict=True)])]
    for name, (inputs, read) in rows:
        print(f"| {name} | {inputs:,} | {read:,} | {inputs - read:,} |")


def one_round(reader: fuzzing.Reader, number: int, counts: list[int]) -> None:
    """Give a reader some inputs, other ones with every number."""
    for count in range(ROUND):
        data = fuzzing.input_for(reader, Random(f"{number} {count}"))
        try:
            counts[1] += fuzzing.is_sound(reader, data)
        except BaseException:
            print(f"reader {reader.name}, round {number}, input {count}:\n{data[:5000]!r}")
            raise
        counts[0] += 1


if __name__ == "__main__":
    main()
