"""What a mini-batch costs with each sampler: parameters, bytes that are kept, time and memory.

python benchmarks/samplers.py [--data fb15k237] [--model TransE] [--batch-size 1024] [--device auto]

The measured twin of the paper's Table I.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from nscaching import KnowledgeGraph, TrainConfig
from nscaching.kernels import choose_device
from nscaching.kernels.cpu.threads import torch_threads
from nscaching.samplers import SAMPLERS
from nscaching.training.trainer import Trainer

WARM_UP = 3  # steps: compile, record CUDA graphs
SECONDS = 10.0  # for one sampler, if that is enough for three steps

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"sampler": name} for name in SAMPLERS.names()},
    "nscaching, lazy 1": {"sampler": "nscaching", "lazy": 1},
    "none, kvsall": {"sampler": "none", "objective": "kvsall"},
}
ORDER = (
    "bernoulli", "uniform", "nscaching", "nscaching, lazy 1", "kbgan", "igan",
    "self-adversarial", "none", "none, kvsall",
)  # fmt: skip


def bytes_of(tensors: dict[str, torch.Tensor]) -> int:
    """Return the bytes of some tensors."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def measure(graph: KnowledgeGraph, settings: dict[str, Any]) -> dict[str, Any]:
    """Train some steps of two epochs and return what they cost."""
    trainer = Trainer(graph, TrainConfig.from_dict(settings))
    generator = getattr(trainer.sampler, "generator", None)
    tables = [*trainer.model.parameters(), *(generator.parameters() if generator else [])]
    lazy = settings.get("lazy", 0)
    seconds: dict[int, list[float]] = {epoch: [] for epoch in range(1, lazy + 2)}
    cuda = trainer.device.type == "cuda"
    for epoch, taken in seconds.items():
        trainer.sampler.begin_epoch(epoch)
        began = time.perf_counter()
        for count, size in enumerate(trainer.triples.sizes(settings["batch_size"])):
            if cuda:
                torch.cuda.synchronize()
                if count == WARM_UP:
                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            with torch_threads(trainer.torch_threads):
                trainer.step(size)
            if cuda:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - start)
            if count >= WARM_UP + 3 and time.perf_counter() - began > SECONDS:
                break
    found = {
        "parameters": sum(table.numel() for table in tables),
        "kept_bytes": bytes_of(trainer.sampler.state()),
        "seconds": statistics.mean(statistics.median(t[WARM_UP:]) for t in seconds.values()),
    }
    if cuda:
        found["step_bytes"] = torch.cuda.max_memory_allocated() - before
    return found


def main() -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fb15k237")
    parser.add_argument("--model", default="TransE")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", default=list(ORDER), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    torch.set_flush_denormal(True)  # as ``train`` does
    graph, device = KnowledgeGraph.load(chosen.data), choose_device(chosen.device)
    settings = {"model": chosen.model, "batch_size": chosen.batch_size, "device": device.type}
    print(
        "| sampler | parameters | kept by the sampler, MB | ms a step | × bernoulli | MB a step |"
    )
    print("|---|---|---|---|---|---|")
    rows = []
    for name in chosen.only:
        row = {"sampler": name, **measure(graph, settings | VARIANTS[name])}
        rows.append(row)
        ratio = row["seconds"] / rows[0]["seconds"]
        step = f"{row['step_bytes'] / 1e6:.0f}" if "step_bytes" in row else ""
        kept = f"{row['kept_bytes'] / 1e6:.1f}"
        time_of = f"{1000 * row['seconds']:.3g}"
        print(f"| {name} | {row['parameters']:,} | {kept} | {time_of} | {ratio:.3g} | {step} |")
        sys.stdout.flush()
    chosen.out.mkdir(parents=True, exist_ok=True)
    target = chosen.out / f"samplers-{device.type}-{chosen.model.lower()}.json"
    found = {"data": graph.name, "settings": settings, "rows": rows}
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
