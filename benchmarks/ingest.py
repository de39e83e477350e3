"""From a TSV to the arrays of a graph: seconds and peak memory of the first and the second start.

python benchmarks/ingest.py --triples 100000000 --entities 20000000 --memory 4GiB
python benchmarks/ingest.py --memory ""           # our own reader instead, which keeps nothing
python benchmarks/ingest.py --indices             # and the indices of training and filter

The file is made in a temporary folder, which also takes the kept arrays: about 45 bytes a triple.
It is the same with every call by one version of DuckDB. Each start is a process of its own; the
peak is that of its resident memory, mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

Done = tuple[str, float, float]
"""What begins, seconds since the start, peak MiB until then."""


def make(path: Path, asked: argparse.Namespace) -> None:
    """Write a TSV in which each entity occurs, and a few of them very often."""
    import duckdb

    entities, seed = asked.entities, asked.seed

    def share(salt: int) -> str:
        return f"(hash(i, {seed}, {salt}) / 18446744073709551616.0)"

    def name(entity: str) -> str:  # as Wikidata's ids: with gaps, in no order
        return f"'Q' || (({entity}) * 7368787 % {10 * entities})"

    def floor(number: str) -> str:
        return f"floor({number})::BIGINT"

    head, tail = f"i % {entities}", floor(f"{entities} * {share(2)} ** {asked.skew}")
    relation = floor(f"{asked.relations} * {share(1)} ** 3")
    columns = f"{name(head)}, 'P' || (1 + {relation}), {name(tail)}"
    rows = f"SELECT {columns} FROM range({asked.triples}) AS rows(i)"  # noqa: S608  (numbers)
    with duckdb.connect(config={"memory_limit": "1GiB"}) as base:
        base.execute(f"COPY ({rows}) TO '{path}' (DELIMITER '\t', HEADER false)")


def measure(path: Path, memory: str, indices: bool) -> list[Done]:
    """Load the graph, and note when each part of the work begins."""
    began = time.perf_counter()
    found: list[Done] = []

    def done(what: str) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if not found or found[-1][0] != what:
            found.append((what, time.perf_counter() - began, peak))

    done("imports")
    from nscaching import KnowledgeGraph

    graph = KnowledgeGraph.load(path, memory=memory, progress=lambda what, *_: done(what))
    done("loaded")
    assert graph.fingerprint
    if indices:
        done("indexing training triples and their keys")
        assert len(graph.train_keys) == 2
        done("indexing all triples")
        assert len(graph.filter_index) == 2
    done("end")
    return [*found, (f"{graph!r}, fingerprint {graph.fingerprint}", 0.0, 0.0)]


def main() -> None:
    """Make the file, start twice in fresh processes, print what each part took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--relations", type=int, default=500)
    parser.add_argument("--skew", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--indices", action="store_true")
    parser.add_argument("--folder", help="where to make the temporary folder")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure, asked.memory, asked.indices)))
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder) / "big.tsv"
        began = time.perf_counter()
        make(path, asked)
        seconds = time.perf_counter() - began
        print(f"{path.stat().st_size / 1e6:,.0f} MB of TSV, made in {seconds:.0f} s", flush=True)
        command = [sys.executable, __file__, "--measure", str(path), "--memory", asked.memory]
        command += ["--indices"] * asked.indices
        surroundings = os.environ | {"NSCACHING_HOME": f"{folder}/home"}
        for start in ("first", "second"):
            output = subprocess.check_output(command, env=surroundings)  # noqa: S603
            *parts, (graph, *_) = json.loads(output)
            print(f"\n| {start} start | begins after s | peak MiB until then |\n|---|---|---|")
            for what, after, peak in parts:
                print(f"| {what} | {after:.1f} | {peak:,.0f} |")
            print(graph, flush=True)
        kept = sum(file.stat().st_size for file in Path(folder, "home").rglob("*.*"))
        print(f"\nkept: {kept / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
