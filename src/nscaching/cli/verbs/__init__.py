"""The verbs of the command line by name."""

from nscaching.cli.verbs._base import Verb
from nscaching.cli.verbs.audit import Audit, Entities, Relations
from nscaching.cli.verbs.auto import Auto
from nscaching.cli.verbs.compare import Compare, Demo
from nscaching.cli.verbs.evaluate import Classify, Evaluate
from nscaching.cli.verbs.explain import Explain
from nscaching.cli.verbs.export import Export, Report
from nscaching.cli.verbs.extend import Extend
from nscaching.cli.verbs.listing import Datasets, Presets
from nscaching.cli.verbs.paper import Figures, Reproduce
from nscaching.cli.verbs.predict import Inspect, Neighbours, Predict
from nscaching.cli.verbs.serve import Serve
from nscaching.cli.verbs.train import Train
from nscaching.cli.verbs.tuning import Tune

__all__ = ["VERBS", "Train", "Tune", "Verb"]

_TRAINING: tuple[type[Verb], ...] = (Demo, Datasets, Auto, Train, Tune)
_ASKING: tuple[type[Verb], ...] = (Evaluate, Classify, Predict, Explain, Neighbours, Inspect, Serve)
_WRITING: tuple[type[Verb], ...] = (Extend, Export, Compare, Presets, Reproduce, Report, Figures)
_DATA: tuple[type[Verb], ...] = (Audit, Relations, Entities)
VERBS = {verb.__name__.lower(): verb for verb in (*_TRAINING, *_ASKING, *_WRITING, *_DATA)}
