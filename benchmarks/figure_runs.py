"""The trainings behind the figures of the paper; what is missing is trained, what is done is left.

python benchmarks/figure_runs.py convergence --out runs/convergence [--data …] [--epochs N]
nscaching figures convergence runs/convergence/*

What the paper says of them: the distribution of scores is of Bernoulli sampling with TransD on
WN18, six epochs of one triple and five triples after pretraining. Convergence is of TransD and
ComplEx on four data sets; Bernoulli trains for 3,000 epochs, the others for 1,000, from scratch and
from a start that Bernoulli sampling pretrained for "several epochs" (it does not say how many; here
a tenth). Strategies and sizes are of TransD on WN18, sizes of {10, 30, 50, 70, 90} with the other
one at 50, all else N1 = N2 = 50. Gradients are of TransD and ComplEx on WN18RR. The cache over
epochs is that of FB13 at 0, 20, 100, 200 and 500; of which scoring function it does not say.

A run is trained in OUT/.unfinished and moved when it is done, so it may be stopped at any time and
OUT/* are finished runs alone. Pretrained starts are kept in OUT/.starts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nscaching import KnowledgeGraph
from nscaching.config import TrainConfig
from nscaching.errors import UserError
from nscaching.runs.folder import RunFolder

FOUR = ("wn18", "wn18rr", "fb15k", "fb15k237")
SIZES = (10, 30, 50, 70, 90)
RANKINGS = 25  # points of a curve of MRR
EPOCHS, BERNOULLI_EPOCHS = 1000, 3000
# λ of ComplEx and DistMult: what did well in the search for presets.
PENALTIES = {"wn18": 0.01, "wn18rr": 0.1, "fb15k": 0.03, "fb15k237": 0.1}

# The data sets and scoring functions of each figure.
FIGURES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "distribution": (("wn18",), ("TransD",)),
    "convergence": (FOUR, ("TransD", "ComplEx")),
    "strategies": (("wn18",), ("TransD",)),
    "sizes": (("wn18",), ("TransD",)),
    "gradients": (("wn18rr",), ("TransD", "ComplEx")),
    "cache": (("fb13",), ("TransD",)),
}


@dataclass(frozen=True)
class Training:
    """One run of a figure."""

    data: str
    model: str
    sampler: str
    label: str = ""
    """What tells it from other runs of the sampler."""
    pretrain: bool = False
    start_epochs: int = EPOCHS // 10
    """Of the start, if it is pretrained."""
    epochs: int = EPOCHS
    settings: dict[str, Any] = field(default_factory=dict)
    probes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its run folder."""
        parts = [Path(self.data).name, self.model, self.sampler, self.label]
        return "-".join(part for part in parts if part).lower()


def settings_for(data: str, model: str) -> dict[str, Any]:
    """Return the hyperparameters of a scoring function on a data set."""
    if data == "world":  # the defaults are made for graphs of its size
        return {}
    shared = {"dim": 100, "batch_size": 4096}
    if model in ("DistMult", "ComplEx"):
        return {**shared, "lr": 0.001, "penalty": PENALTIES.get(data, 0.1)}
    return {**shared, "lr": 0.001, "margin": 4.0}


def trainings(
    kind: str, data: str, model: str, epochs: int | None = None, kbgan_epochs: int = EPOCHS
) -> list[Training]:
    """Return the runs of a figure for one data set and scoring function."""

    def run(sampler: str, label: str = "", most: int = EPOCHS, **rest: Any) -> Training:  # noqa: ANN401
        start = max(1, (epochs or EPOCHS) // 10)
        return Training(
            data, model, sampler, label, epochs=epochs or most, start_epochs=start, **rest
        )

    probes: dict[str, Any] = {"probe_test": True}
    if kind == "distribution":
        every = max(1, (epochs or EPOCHS) // 5)  # with the start, six
        return [run("bernoulli", probes={"watch": 5, "watch_every": every})]
    if kind == "convergence":
        return [run("bernoulli", most=BERNOULLI_EPOCHS, probes=probes)] + [
            run(sampler, start, most, pretrain=start == "pretrain", probes=probes)
            for sampler, most in (("nscaching", EPOCHS), ("kbgan", kbgan_epochs))
            for start in ("pretrain", "scratch")
        ]
    if kind == "strategies":
        probes |= {"probe_repeats": 20, "probe_changes": True}
        pairs = [("uniform", "importance"), ("importance", "importance"), ("top", "importance")]
        cached = [
            run("nscaching", f"{draw}-{refresh}", probes=probes, settings=settings)
            for draw, refresh in [*pairs, ("uniform", "top")]
            for settings in [{"draw": draw, "refresh": refresh}]
        ]
        return [run("bernoulli", probes={**probes, "probe_changes": False}), *cached]
    if kind == "sizes":
        pairs = dict.fromkeys([(n, 50) for n in SIZES] + [(50, n) for n in SIZES])
        return [
            run("nscaching", f"{n1}-{n2}", settings={"n1": n1, "n2": n2}, probes=probes)
            for n1, n2 in pairs
        ]
    if kind == "gradients":
        return [run("bernoulli"), run("nscaching")]
    last = epochs or 500
    snapshots = tuple(epoch for epoch in (0, 20, 100, 200, 500) if epoch <= last)
    return [run("nscaching", most=500, probes={"snapshots": snapshots})]


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=list(FIGURES))
    parser.add_argument("--out", type=Path, required=True, help="folder of run folders")
    parser.add_argument("--data", nargs="+", help="data sets instead of the paper's")
    parser.add_argument("--models", nargs="+", help="scoring functions instead of the paper's")
    parser.add_argument("--epochs", type=int, help="epochs of every run instead of the paper's")
    parser.add_argument("--kbgan-epochs", type=int, default=EPOCHS, help="KBGAN's epochs are long")
    parser.add_argument("--labels", default="", help="a file of names for the entities' ids")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    chosen = parser.parse_args()
    everywhere = {"seed": chosen.seed, "device": chosen.device, "threads": chosen.threads}
    data, models = FIGURES[chosen.kind]
    for name in chosen.data or data:
        planned = [
            training
            for model in chosen.models or models
            for training in trainings(chosen.kind, name, model, chosen.epochs, chosen.kbgan_epochs)
        ]
        try:
            carry_out(planned, chosen.out, everywhere, chosen.labels)
        except UserError as error:
            sys.exit(f"figure_runs: {error}")


def carry_out(
    planned: list[Training], out: Path, everywhere: dict[str, Any], labels: str = ""
) -> None:
    """Train the runs of one data set that are not in the folder yet."""
    graph = None
    for number, training in enumerate(planned, 1):
        where, settings = out / training.name, settings_of(training, everywhere)
        if is_there(where, settings):
            print(f"{number}/{len(planned)} {where}: is there")
            continue
        print(f"{number}/{len(planned)} {where}")
        sys.stdout.flush()
        graph = graph or KnowledgeGraph.load(training.data, labels=labels)
        if training.pretrain:
            settings["pretrain"] = str(pretrained(graph, training, out, everywhere))
        train_into(where, out, graph, settings, training.probes)


def settings_of(training: Training, everywhere: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, its start apart."""
    return {
        **settings_for(training.data, training.model),
        "model": training.model,
        "sampler": training.sampler,
        "epochs": training.epochs,
        "validate_every": max(1, training.epochs // RANKINGS),
        **training.settings,
        **everywhere,
    }


def pretrained(
    graph: KnowledgeGraph, training: Training, out: Path, everywhere: dict[str, Any]
) -> Path:
    """Return the run folder of a start, which runs of a data set and scoring function share."""
    start = Training(training.data, training.model, "bernoulli", epochs=training.start_epochs)
    where, settings = out / ".starts" / start.name, settings_of(start, everywhere)
    if not is_there(where, settings):
        train_into(where, out, graph, settings, {})
    return where.resolve()


def is_there(where: Path, settings: dict[str, Any]) -> bool:
    """Say whether a run is there already, made with these settings."""
    if not where.exists():
        return False
    found = RunFolder(where).read_config()[1].flat()
    for key, value in TrainConfig.from_dict(settings).flat().items():
        if key in settings and found[key] != value:
            what = f"{key} is {found[key]} there, {value} is asked for"
            raise UserError(f"{where} was trained otherwise ({what}): choose another --out")
    return True


def train_into(
    where: Path, out: Path, graph: KnowledgeGraph, settings: dict[str, Any], probes: dict[str, Any]
) -> None:
    """Train a run beside the finished ones and move it among them."""
    from nscaching.training.display import TrainingDisplay
    from nscaching.training.train import train

    unfinished = out / ".unfinished" / where.name
    shutil.rmtree(unfinished, ignore_errors=True)  # of a training that was stopped
    config = TrainConfig.from_dict(settings)
    # Once without a folder: the seconds of a run should not hold those of compiling its kernels.
    train(graph, config, epochs=1, validate_every=0)
    with TrainingDisplay(where.name, config) as display:
        train(graph, config, out=unfinished, listener=display, **probing(probes))
    where.parent.mkdir(parents=True, exist_ok=True)
    unfinished.rename(where)


def probing(probes: dict[str, Any]) -> dict[str, Any]:
    """Return the argument of ``train`` that turns probes on."""
    try:
        from nscaching.probes import ProbeConfig
    except ImportError:
        if probes:
            print(f"this version of nscaching has no probes; not recorded: {', '.join(probes)}")
        return {}
    return {"probes": ProbeConfig(**probes)}


if __name__ == "__main__":
    main()
