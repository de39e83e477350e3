"""Models and samplers by name, in any case, or from a user's own module."""

from __future__ import annotations

import sys

import pytest
import torch

from helpers import TINY, random_graph
from nscaching import Run, train
from nscaching.config import TrainConfig
from nscaching.errors import UserError
from nscaching.models import MODELS, Model
from nscaching.models.translational import TransE
from nscaching.registry import Registry
from nscaching.samplers import SAMPLERS, Sampler
from nscaching.samplers.cached import NSCaching
from nscaching.samplers.fixed import Uniform

MODULE = """
from nscaching.models.translational import TransE
from nscaching.samplers import Sampler

class Mine(TransE):
    "A model of one's own."

class Unfinished(Sampler):
    "Lacks sample."

number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Make modules of a user importable."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users_own.py").write_text(MODULE)
    (tmp_path / "users_broken.py").write_text("def f(:\n")
    (tmp_path / "users_failing.py").write_text("1 / 0\n")
    yield
    for name in ("users_own", "users_broken", "users_failing"):
        sys.modules.pop(name, None)


def test_what_the_package_has():
    assert set(MODELS.names()) == {
        "ANALOGY", "ComplEx", "DistMult", "HolE", "ManifoldE", "ManifoldE-hyperplane", "RESCAL",
        "RotatE", "SimplE", "TransD", "TransE", "TransH", "TransM", "TranSparse", "TransR",
    }  # fmt: skip
    others = {"igan", "kbgan", "none", "self-adversarial"}
    assert set(SAMPLERS.names()) == {"bernoulli", "nscaching", "uniform"} | others
    for registry, base in ((MODELS, Model), (SAMPLERS, Sampler)):
        assert registry.names() == sorted(registry.names(), key=str.casefold)
        assert all(issubclass(registry.get(name), base) for name in registry.names())


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title, str.swapcase])
def test_case_does_not_matter(change):
    for registry in (MODELS, SAMPLERS):
        for name in registry.names():
            assert registry.canonical(change(name)) == name
            assert registry.get(change(name)) is registry.get(name)
    assert MODELS.get("TRANSE") is TransE
    assert SAMPLERS.get("NSCaching") is NSCaching


def test_an_unknown_name_comes_with_the_known_ones():
    known = ", ".join(MODELS.names())
    with pytest.raises(UserError, match=f"^unknown model 'TransX'; known: {known}$"):
        MODELS.get("TransX")
    with pytest.raises(UserError, match=r"^unknown sampler ''; known: bernoulli, igan, kbgan, n"):
        SAMPLERS.canonical("")


def test_a_class_of_ones_own(mine):
    assert MODELS.canonical("users_own:Mine") == "users_own:Mine"
    cls = MODELS.get("users_own:Mine")
    assert issubclass(cls, TransE)
    assert cls(4, 2, 3).entity.shape == (4, 3)


def test_a_class_in_the_folder_where_the_user_works(tmp_path, monkeypatch):
    (tmp_path / "users_local.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.chdir(tmp_path)
    try:
        assert issubclass(MODELS.get("users_local:Mine"), TransE)
    finally:
        sys.modules.pop("users_local", None)


@pytest.mark.parametrize(
    ("registry", "spec", "message"),
    [
        (MODELS, "no_such_module_here:X", "cannot load model .*No module named"),
        (MODELS, "users_own:Gone", "cannot load model .*no attribute 'Gone'"),
        (MODELS, "users_own:", "cannot load model 'users_own:'"),
        (MODELS, ":Mine", "cannot load model ':Mine'"),
        (MODELS, ":", "cannot load model ':'"),
        (MODELS, ".relative:Mine", "cannot load model"),
        (MODELS, "users_broken:Mine", "cannot load model .*invalid syntax"),
        (MODELS, "users_failing:Mine", "cannot load model .*division by zero"),
        (MODELS, "users_own:number", "is not a complete subclass of Model"),
        (SAMPLERS, "users_own:Mine", "is not a complete subclass of Sampler"),
        (SAMPLERS, "users_own:Unfinished", "is not a complete subclass of Sampler"),
        (MODELS, "nscaching.models:Model", "is not a complete subclass of Model"),
    ],
)
def test_a_class_that_cannot_be_used(mine, registry, spec, message):
    with pytest.raises(UserError, match=message):
        registry.get(spec)


def test_a_name_is_given_once():
    things = Registry("thing", object, "nscaching.models")
    things.register("One")(object)
    with pytest.raises(ValueError, match="thing 'ONE' is registered twice"):
        things.register("ONE")(str)


def test_the_defaults_are_registered():
    assert TrainConfig().model in MODELS.names()
    assert TrainConfig().sampler in SAMPLERS.names()


# Classes instead of names.


class Passed(TransE):
    """A model of this module."""


class Incomplete(Model):
    """A model without a score."""


def test_a_class_of_the_package_has_its_name():
    assert MODELS.canonical(TransE) == "TransE"
    assert MODELS.get(TransE) is TransE
    assert SAMPLERS.canonical(NSCaching) == "nscaching"


def test_a_class_has_a_spec_that_finds_it_again():
    assert MODELS.canonical(Passed) == f"{__name__}:Passed"
    assert MODELS.get(Passed) is MODELS.get(f"{__name__}:Passed") is Passed


def test_a_class_that_cannot_be_passed():
    with pytest.raises(UserError, match=r"^model 'Incomplete' is not a complete subclass of Model"):
        MODELS.get(Incomplete)
    with pytest.raises(UserError, match=r"^sampler 'Passed' is not a complete subclass of Sampler"):
        train(random_graph(), **TINY, sampler=Passed)
    with pytest.raises(UserError, match="must be of type str, not 3"):
        train(random_graph(), **TINY | {"model": 3})


def test_classes_go_where_names_go(tmp_path):
    class Local(TransE):
        pass

    class Draw(Uniform):
        pass

    plain = {**TINY, "kernels": "reference"}  # the compiled ones know the package's own classes
    by_name = train(random_graph(), **plain, sampler="uniform")
    run = train(random_graph(), **plain | {"model": Local}, sampler=Draw, out=tmp_path / "run")
    assert type(run.model) is Local
    assert torch.equal(run.model.entity, by_name.model.entity)
    assert run.evaluate() == by_name.evaluate()
    function = "test_classes_go_where_names_go.<locals>"
    assert run.config.model == f"{__name__}:{function}.Local"
    assert run.config.sampler == f"{__name__}:{function}.Draw"
    assert type(Run.load(tmp_path / "run", trust=True).model) is Local  # in this process
    generated = train(random_graph(), **TINY, sampler="kbgan", generator=Passed)
    assert generated.config.gan.generator == f"{__name__}:Passed"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("users_own:make.<locals>.Mine", "the class was defined inside a function"),
        ("__main__:NoSuchModel", "the class was defined in a notebook or a script"),
    ],
)
def test_a_class_that_cannot_be_imported_again(mine, spec, reason):
    message = f"^cannot load model '{spec}': {reason}; define it in a module or a file$"
    with pytest.raises(UserError, match=message):
        MODELS.get(spec)


def test_a_class_of_a_users_file_is_named_by_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)
    cls = MODELS.get("mine.py:Mine")
    assert MODELS.canonical(cls) == f"{tmp_path / 'mine.py'}:Mine"
    assert MODELS.get(f"{tmp_path / 'mine.py'}:Mine") is cls


def test_a_class_within_a_class(mine, tmp_path):
    (tmp_path / "users_own.py").write_text(f"{MODULE}\nclass Outer:\n    Inner = Mine\n")
    assert issubclass(MODELS.get("users_own:Outer.Inner"), TransE)
