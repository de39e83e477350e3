"""The verbs of the command line by name."""

from nscaching.verbs._base import Verb
from nscaching.verbs.asking import Classify, Evaluate, Export, Neighbours, Predict
from nscaching.verbs.drawing import Figures
from nscaching.verbs.making import Compare, Datasets, Demo, Train

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
    "figures": Figures,
}
