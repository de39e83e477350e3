"""Too little memory: rankings go on in smaller chunks, trainings say what to lower."""

from __future__ import annotations

import shlex
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from helpers import TINY, new_model, random_graph
from nscaching import Run, TrainConfig, UserError, train
from nscaching.cli.main import main
from nscaching.data.index import Side
from nscaching.evaluation.candidates import evaluate_relations
from nscaching.evaluation.chunks import Chunks, is_shortage
from nscaching.evaluation.classify import score_triples
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels import Kernels
from nscaching.training.trainer import Trainer

GRAPH = random_graph(entities=20, train=90, valid=30, test=30)

# As PyTorch and NumPy word them.
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    MemoryError("Unable to allocate 8.00 TiB for an array"),
]  # fmt: skip
errors = pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu", "numpy"])


class Small(Kernels):
    """Has memory for some queries at once."""

    def __init__(self, most, error):
        super().__init__()
        self.most, self.error, self.tried = most, error, []

    def score_all(self, model, side, anchor, relation, entities=None):
        self.tried.append(len(anchor))
        if len(anchor) > self.most:
            raise self.error
        return super().score_all(model, side, anchor, relation, entities)


def test_the_real_errors_are_known():
    with pytest.raises(RuntimeError) as cpu:
        torch.empty(1 << 60, dtype=torch.uint8)
    with pytest.raises(MemoryError) as numpy:
        np.empty(1 << 60, dtype=np.uint8)
    assert is_shortage(cpu.value)
    assert is_shortage(numpy.value)
    assert all(map(is_shortage, ERRORS))
    assert not is_shortage(RuntimeError("shapes do not fit"))
    assert not is_shortage(UserError("out of memory"))


@errors
@pytest.mark.parametrize("most", [29, 8, 7, 1])
def test_a_ranking_goes_on_in_smaller_chunks(error, most):
    model, queries = new_model("TransE", 20), Queries(GRAPH, GRAPH.test)
    whole = rank(model, queries, kernels=Kernels())
    small = Small(most, error)
    with pytest.warns(UserWarning, match="not enough memory for 30 queries at once") as said:
        found = rank(model, queries, kernels=small)
    assert len(said) == 1
    for side in Side:
        assert np.array_equal(found[side].optimistic, whole[side].optimistic)
        assert np.array_equal(found[side].pessimistic, whole[side].pessimistic)
    again = Small(most, error)
    rank(model, queries, kernels=again)
    assert max(again.tried) <= most  # the next ranking begins where this one ended


def test_a_ranking_gives_up_at_one_query():
    with (
        pytest.warns(UserWarning, match="not enough memory"),
        pytest.raises(UserError, match="not enough memory for even one of the queries at a time"),
    ):
        rank(new_model("TransE", 20), Queries(GRAPH, GRAPH.test), kernels=Small(0, ERRORS[1]))


def test_other_errors_are_not_hidden():
    with pytest.raises(RuntimeError, match="shapes"):
        rank(
            new_model("TransE", 20),
            Queries(GRAPH, GRAPH.test),
            kernels=Small(3, RuntimeError("shapes")),
        )


@errors
def test_tasks_go_on_in_smaller_chunks(error, monkeypatch):
    model = new_model("TransE", 20)
    calls = {
        "triples": lambda: score_triples(model, GRAPH.train),
        "relations": lambda: evaluate_relations(model, GRAPH, "test")["mrr"],
        "neighbours": lambda: Run(GRAPH, None, model).neighbours("e3"),
    }
    whole = {name: call() for name, call in calls.items()}

    def short(function):
        def limited(*args):
            if max(torch.as_tensor(a).numel() for a in args if not isinstance(a, str)) > 7:
                raise error
            return function(*args)

        return limited

    monkeypatch.setattr(model, "score", short(model.score))
    monkeypatch.setattr(model, "entity_rows", short(model.entity_rows))
    for name, call in calls.items():
        with pytest.warns(UserWarning, match="not enough memory for") as said:
            assert np.array_equal(call(), whole[name]), name
        assert len(said) == 1


def test_chunks_are_whole_and_in_order():
    limit = iter([9, 9, 4, 4, 2, 2, 2, 9, 9, 9, 9])

    def work(some):
        if some.stop - some.start > next(limit):
            raise MemoryError
        return list(range(some.start, some.stop))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [part for _, part in Chunks(8).over(21, work)]
    assert [i for part in parts for i in part] == list(range(21))


@errors
def test_a_training_says_what_to_lower(error, monkeypatch):
    def fail(self, rows):
        raise error

    monkeypatch.setattr(Trainer, "_step", fail)
    with pytest.raises(UserError) as caught:
        train(GRAPH, TrainConfig.from_dict({**TINY, "dim": 4096, "n1": 10}))
    said = str(caught.value)
    assert said.startswith("out of memory: this training was to need ")
    assert "dim " in said
    assert said.endswith(" would fit")


def test_the_command_line_says_it_in_a_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "toy").mkdir()
    for split in ("train", "valid", "test"):
        lines = "".join(f"a{i}\tr\tb{i % 3}\n" for i in range(9))
        (tmp_path / "toy" / f"{split}.tsv").write_text(lines)
    monkeypatch.chdir(tmp_path)
    main(["train", "toy", *shlex.split("--epochs 1 --dim 4 --n1 4 --n2 4 --threads 1 --out run")])
    capsys.readouterr()
    count = Kernels.count

    def short(self, scores, answer, known):
        if len(answer) > 1:
            raise MemoryError
        return count(self, scores, answer, known)

    monkeypatch.setattr("nscaching.kernels.cpu.kernels.NumbaKernels.count", short)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        main(["evaluate", "run"])
    noted = "note: not enough memory for 9 queries at once: going on with fewer\n"
    assert capsys.readouterr().err == noted


# The real thing: a process whose memory ends.
PROCESS = """
import resource, warnings
import numpy as np, torch
from nscaching import KnowledgeGraph
from nscaching.evaluation.ranking import Queries, rank
from nscaching.kernels import Kernels
from nscaching.models import build

torch.set_num_threads(1)
random = np.random.default_rng(0)
triples = random.integers([100_000, 2, 100_000], size=(400, 3)).astype(np.int32)
none = triples[:0]
names = [str(i) for i in range(100_000)], ["r", "s"]
graph = KnowledgeGraph(*names, triples, none, none)
model = build("TransE", graph, 4, 1)
model.reset(torch.Generator().manual_seed(0))
queries, shown = Queries(graph, triples), []
warnings.showwarning = lambda message, *rest: shown.append(str(message))
whole = rank(model, queries, kernels=Kernels(), budget=1 << 40)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (120 << 20)  # scores alone take 160 MB
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
queries.most = len(triples)
found = rank(model, queries, kernels=Kernels(), budget=1 << 40)
pairs = [(vars(found[side]), vars(whole[side])) for side in whole]
same = all(np.array_equal(ours[k], theirs[k]) for ours, theirs in pairs for k in ours)
print(same, queries.most, shown)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_a_process_whose_memory_ends_ranks_all_the_same():
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True
    )
    same, most, said = done.stdout.split(maxsplit=2)
    assert same == "True"
    assert 1 <= int(most) < 400
    assert said.strip() == "['not enough memory for 400 queries at once: going on with fewer']"
