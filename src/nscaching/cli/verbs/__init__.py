"""The verbs of the command line by name."""

from nscaching.cli.verbs._base import Verb
from nscaching.cli.verbs.asking import Classify, Evaluate, Export, Neighbours, Predict
from nscaching.cli.verbs.drawing import Figures
from nscaching.cli.verbs.inspecting import Inspect
from nscaching.cli.verbs.making import Compare, Datasets, Demo, Train
from nscaching.cli.verbs.reporting import Report
from nscaching.cli.verbs.reproducing import Presets, Reproduce
from nscaching.cli.verbs.tuning import Tune

__all__ = ["VERBS", "Train", "Tune", "Verb"]

VERBS: dict[str, type[Verb]] = {
    "demo": Demo,
    "datasets": Datasets,
    "train": Train,
    "tune": Tune,
    "evaluate": Evaluate,
    "classify": Classify,
    "predict": Predict,
    "neighbours": Neighbours,
    "inspect": Inspect,
    "export": Export,
    "compare": Compare,
    "presets": Presets,
    "reproduce": Reproduce,
    "report": Report,
    "figures": Figures,
}
