"""The verbs of the command line by name."""

from nscaching.verbs._base import Verb
from nscaching.verbs.asking import Classify, Evaluate, Export, Neighbours, Predict
from nscaching.verbs.drawing import Figures
from nscaching.verbs.inspecting import Inspect
from nscaching.verbs.making import Compare, Datasets, Demo, Train
from nscaching.verbs.reporting import Report
from nscaching.verbs.reproducing import Presets, Reproduce
from nscaching.verbs.tuning import Tune

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
