"""How long the trainings to come will take, judged by similar ones that are done."""

from collections.abc import Sequence

from nscaching.paper.reproduce.cell_training import device_name, recorded
from nscaching.paper.reproduce.plan import Cell, Training
from nscaching.paper.reproduce.results import Line, Results


def expected_seconds(trainings: Sequence[Training], results: Results) -> float | None:
    """Return the seconds that trainings will take, by the latest of the most similar results.

    Of a training that was stopped the rest counts. None: this device has trained nothing yet.
    """
    latest: dict[tuple[str, ...], Line] = {}
    for result in results.list:
        latest |= dict.fromkeys(_alike(result.line["device"], result.cell), result.line)
    total = 0.0
    for training in trainings:
        alike = _alike(device_name(training.config.device), training.cell)
        similar = next((latest[key] for key in alike if key in latest), None)
        if similar is None:
            return None
        pace = similar["epoch_seconds"]
        around = similar["seconds"] - pace * similar["epochs"]  # once, such as compiling
        done = sum("split" not in record for record in recorded(results.checkpoints(training)))
        total += pace * (training.config.epochs - done) + max(0.0, around)
    return total


def _alike(device: str, cell: Cell) -> list[tuple[str, ...]]:
    """Return what similar trainings have in common, the most similar first."""
    data, model, sampler = cell[:3]
    return [(device, data, model, sampler), (device, data, sampler), (device, data), (device,)]
