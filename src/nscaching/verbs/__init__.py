"""The verbs of the command line by name."""

from nscaching.verbs._base import Verb
from nscaching.verbs.asking import Classify, Evaluate, Export, Neighbours, Predict
from nscaching.verbs.making import Compare, Datasets, Demo, Train
from nscaching.verbs.reporting import Report
from nscaching.verbs.reproducing import Presets, Reproduce

__all__ = ["VERBS", "Train", "Verb"]

VERBS: dict[str, type[Verb]] = {
    "demo": Demo,
    "datasets": Datasets,
    "train": Train,
    "evaluate": Evaluate,
    "classify": Classify,
    "predict": Predict,
    "neighbours": Neighbours,
    "export": Export,
    "compare": Compare,
    "presets": Presets,
    "reproduce": Reproduce,
    "report": Report,
}
