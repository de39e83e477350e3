"""Training as a whole: determinism, what is kept, when it stops, and what a run gives back."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from helpers import CPU, TINY, Hearing, epochs_of, graph_of, random_graph, threads
from nscaching import Listener, Run, TrainConfig, UserError, train
from nscaching.data.index import Side
from nscaching.evaluation.ranks import METRICS
from nscaching.kernels import Kernels, choose_device, choose_kernels
from nscaching.kernels.codes import KINDS
from nscaching.models import MODELS
from nscaching.samplers import SAMPLERS
from nscaching.training.epoch import EpochMeter, TrainingTriples
from nscaching.training.listener import Stage
from nscaching.training.trainer import Trainer

GRAPH = random_graph(entities=15, train=60, valid=12, test=12)
samplers = pytest.mark.parametrize("sampler", SAMPLERS.names())


def tiny(graph=GRAPH, **settings) -> Run:
    return train(graph, **{**TINY, **settings})


def without_seconds(history):
    return [{k: v for k, v in record.items() if "seconds" not in k} for record in history]


def rankings(run, split):
    return [record for record in run.history if record.get("split") == split]


def equal_parameters(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


# The same seed, the same run.


@samplers
@pytest.mark.parametrize("model", ["TransD", "ComplEx"])
def test_seed_decides(sampler, model):
    settings = {"sampler": sampler, "model": model, "epochs": 4}
    first, again, other = (tiny(**settings, seed=seed) for seed in (1, 1, 2))
    assert without_seconds(first.history) == without_seconds(again.history)
    assert equal_parameters(first.model.state_dict(), again.model.state_dict())
    assert equal_parameters(first.sampler_state, again.sampler_state)
    for one, two in zip(epochs_of(first), epochs_of(other), strict=True):
        assert one["loss"] != two["loss"]
    assert first.result("test")["mrr"] != other.result("test")["mrr"]


@pytest.mark.parametrize("purpose", ["start", "order", "negatives"])
def test_everything_random_has_the_seed(purpose):
    def look(seed):
        trainer = Trainer(GRAPH, TrainConfig.from_dict({**TINY, "seed": seed}))
        if purpose == "start":
            return trainer.model.entity.tolist()
        if purpose == "order":
            return [trainer.triples.take(size)[0].tolist() for size in trainer.triples.sizes(7)]
        return trainer.sampler.cache.rows[Side.HEAD].tolist()

    assert look(3) == look(3)
    assert look(3) != look(4)


def test_the_world_outside_does_not_matter():
    torch.manual_seed(1)
    first = tiny()
    torch.manual_seed(2)
    torch.rand(3)
    assert without_seconds(tiny().history) == without_seconds(first.history)


def test_ranking_does_not_disturb_training():
    with_, without = tiny(epochs=3, validate_every=1), tiny(epochs=3, validate_every=0)
    assert without_seconds(epochs_of(with_)) == without_seconds(epochs_of(without))


# Batches.


@pytest.mark.parametrize("size", [1, 7, 60, 1000])
def test_batches_hold_every_triple_once(size):
    triples = TrainingTriples(GRAPH, CPU, 0, Kernels())
    orders = []
    for _ in range(2):
        rows = []
        sizes = list(triples.sizes(size))
        assert sizes[:-1] == [size] * (len(sizes) - 1)
        for each in sizes:
            some, batch = triples.take(each)
            ids = torch.stack([batch.head, batch.relation, batch.tail], dim=1)
            assert ids.tolist() == GRAPH.train[some.numpy()].tolist()
            for side in Side:
                assert batch.key(side).tolist() == GRAPH.train_keys[side][some.numpy()].tolist()
            rows += some.tolist()
        assert sorted(rows) == list(range(60))
        orders.append(rows)
    assert orders[0] != orders[1] != sorted(orders[1])
    assert triples.columns.dtype == torch.int32
    triples.go_to(1, 20)  # in the second pass, after 20 triples
    assert list(triples.sizes(30, 20)) == [30, 10]
    assert triples.take(30)[0].tolist() == orders[1][20:50]


# The loop.


# test_every_pair.py trains all pairs; here the fit of the triples is measured.
@pytest.mark.parametrize(
    ("model", "sampler"),
    [
        (kind, sampler)
        for kind in MODELS.names()
        for sampler in SAMPLERS.names()
        if MODELS.get(kind) in KINDS or sampler in ("bernoulli", "nscaching", "none")
    ],
)
def test_training_fits_the_training_triples(model, sampler):
    graph = random_graph(entities=30, relations=2, train=30, valid=0, test=0)
    count = 75 if model in ("HolE", "RESCAL") else 25  # their scores take off later
    count = max(count, 40 if sampler == "nscaching" else 0)  # its negatives grow harder meanwhile
    # Unfiltered, a cache of so small a graph holds mostly the triples that are to be learned.
    filtered = sampler != "none"
    run = tiny(graph, model=model, sampler=sampler, epochs=count, dim=16, filter_known=filtered)
    losses = [record["loss"] for record in epochs_of(run)]
    assert sum(losses[-3:]) < 0.85 * sum(losses[:3])
    assert run.evaluate("train")["mrr"] > 0.6
    run.model.reset(torch.Generator().manual_seed(0))
    assert run.evaluate("train")["mrr"] < 0.3


def test_the_cache_is_refreshed_before_the_gradient_step(monkeypatch):
    trainer = Trainer(GRAPH, TrainConfig.from_dict(TINY))
    events = []

    def watch(owner, name):
        inner = getattr(owner, name)

        def outer(*args, **kwargs):
            events.append((name, trainer.model.entity.detach().clone()))
            return inner(*args, **kwargs)

        monkeypatch.setattr(owner, name, outer)

    watch(trainer.sampler, "sample")
    watch(trainer.sampler, "update")
    watch(trainer.learner, "step")
    trainer.epoch(1)
    assert [name for name, _ in events] == ["sample", "update", "step"] * 4
    for before in range(0, 12, 3):
        drawn, refreshed, stepped = (entity for _, entity in events[before : before + 3])
        assert torch.equal(drawn, refreshed)
        assert torch.equal(refreshed, stepped)
    assert not torch.equal(events[0][1], events[3][1])


@pytest.mark.parametrize("lazy", [0, 2])
def test_lazy_epochs_leave_the_cache_alone(lazy):
    trainer = Trainer(GRAPH, TrainConfig.from_dict({**TINY, "lazy": lazy}))
    refreshed = []
    for epoch in range(1, 8):
        before = trainer.sampler.cache.rows[Side.TAIL].clone()
        trainer.epoch(epoch)
        refreshed.append(not torch.equal(before, trainer.sampler.cache.rows[Side.TAIL]))
    assert refreshed == [epoch % (lazy + 1) == 0 for epoch in range(7)]


def test_progress_and_records_are_heard():
    heard, steps = [], []
    run = tiny(listener=Hearing(record=heard.append, progress=lambda *step: steps.append(step)))
    assert heard == run.history
    assert [step for step in steps if step[0] is Stage.TRAINING][:4] == [
        (Stage.TRAINING, done, 60) for done in (16, 32, 48, 60)
    ]
    assert steps[0][0] is Stage.FILLING
    assert (Stage.VALID, 24, 24) in steps
    assert steps[-1] == (Stage.TEST, 24, 24)


def test_a_listener_does_nothing_unless_told():
    listener = Listener()
    with pytest.warns(UserWarning, match="^a full disk$"):
        listener.note("a full disk")
    assert not listener.stop()
    assert tiny(listener=listener).history


def test_a_new_run_begins_with_no_records_and_one_announcement():
    begun, announced = [], []
    tiny(listener=Hearing(begin=lambda h: begun.append(list(h)), announce=announced.append))
    assert begun == [[]]
    (plan,) = announced
    assert "kernels" in plan


@pytest.mark.parametrize("flushed", [True, False])
def test_torch_is_after_a_run_as_it_was_before(flushed):
    """Threads and subnormal numbers are set for the time of a run only."""

    def surroundings():
        return (torch.tensor(1e-40) * 1).item() == 0, torch.get_num_threads()

    def break_off(*_):
        seen.append(surroundings())
        raise BrokenPipeError

    seen = []
    try:
        torch.set_flush_denormal(flushed)
        with threads(2):
            Trainer(GRAPH, TrainConfig.from_dict({**TINY, "threads": 3}))
            assert surroundings() == (flushed, 2)
            with pytest.raises(BrokenPipeError):
                tiny(threads=3, kernels="reference", listener=Hearing(record=break_off))
            assert surroundings() == (flushed, 2)
    finally:
        torch.set_flush_denormal(False)
    assert seen == [(True, 3)]


# What is kept.


@functools.cache
def twelve_epochs(seed):
    return tiny(epochs=12, seed=seed, lr=0.3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_best_parameters_are_kept(seed):
    run = twelve_epochs(seed)
    valid = rankings(run, "valid")
    best = max(valid, key=lambda record: record["mrr"])  # of equals, the first
    assert run.best_epoch == best["epoch"]
    assert run.evaluate("valid")["mrr"] == best["mrr"]
    running = [
        record["mrr"] > max((r["mrr"] for r in valid[:i]), default=-1)
        for i, record in enumerate(valid)
    ]
    assert [record["best"] for record in valid] == running
    assert run.result("valid") == best
    assert run.result("test")["epoch"] == best["epoch"]
    test = run.evaluate("test")
    assert {name: run.result("test")[name] for name in METRICS} == {
        name: test[name] for name in METRICS
    }
    # The same training stopped there has the same parameters.
    short = tiny(epochs=run.best_epoch, seed=seed, lr=0.3)
    assert short.best_epoch == run.best_epoch
    assert equal_parameters(short.model.state_dict(), run.model.state_dict())


def test_the_best_is_not_always_the_last():
    assert any(twelve_epochs(seed).best_epoch < 12 for seed in range(3))


@pytest.mark.parametrize(("every", "validated"), [(3, [3, 6, 8]), (4, [4, 8]), (100, [8])])
def test_validation_comes_in_turn_and_at_the_end(every, validated):
    run = tiny(epochs=8, validate_every=every)
    assert [record["epoch"] for record in rankings(run, "valid")] == validated


def test_without_validation_the_last_parameters_are_kept():
    never, empty = tiny(validate_every=0), tiny(random_graph(valid=0))
    for run in (never, empty):
        assert run.best_epoch == 2
        assert rankings(run, "valid") == []
        assert run.result("test")["epoch"] == 2


def test_without_test_triples_there_is_no_test_ranking():
    run = tiny(random_graph(test=0))
    assert run.result("test") is None
    assert run.result("valid") is not None


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_stops_early(patience):
    # At this rate nothing moves: the first validation is the best, the others are no better.
    run = tiny(epochs=30, validate_every=2, patience=patience, lr=1e-12)
    assert run.best_epoch == 2
    assert len(epochs_of(run)) == 2 * (1 + patience)


def test_patience_counts_from_the_last_gain(monkeypatch):
    figures = iter([0.1, 0.1, 0.3, 0.2, 0.2, 0.9])

    def rank(trainer, split, epoch):
        return {"epoch": epoch, "split": split, "mrr": next(figures), "seconds": 0.0}

    monkeypatch.setattr(Trainer, "rank", rank)
    run = tiny(random_graph(test=0), epochs=30, patience=2)
    assert len(epochs_of(run)) == 5
    assert run.best_epoch == 3


# Runs on disk.


@pytest.mark.parametrize("model", MODELS.names())
def test_a_loaded_run_gives_the_same_scores(model, tmp_path, monkeypatch):
    # A run does without its plot, which takes longer to draw than all the rest.
    monkeypatch.setattr("nscaching.runs.run.plot_run", lambda run, path: path.touch())
    run = tiny(model=model, norm=2, epochs=3, out=tmp_path / "run")
    dataclasses.replace(run, path=None).save(tmp_path / "saved")
    for path in (tmp_path / "run", tmp_path / "saved"):
        check_equal(Run.load(path, "cpu"), run)


def check_equal(loaded, run):
    """Compare a loaded run with the run that was trained."""
    anchor, relation = torch.arange(15), torch.arange(15) % 3
    for side in Side:
        assert torch.equal(
            loaded.model.score_all(side, anchor, relation),
            run.model.score_all(side, anchor, relation),
        )
    assert loaded.config == run.config
    assert loaded.history == run.history
    assert loaded.best_epoch == run.best_epoch
    assert loaded.sampler_state.keys() == run.sampler_state.keys() == {"head_cache", "tail_cache"}
    assert equal_parameters(loaded.sampler_state, run.sampler_state)
    assert loaded.evaluate() == run.evaluate()
    assert loaded.classify() == run.classify()
    assert loaded.predict("e1", "r1") == run.predict("e1", "r1")


def test_a_run_that_breaks_off_keeps_its_best(tmp_path):
    class BreakError(Exception):
        pass

    def observe(record):
        if record["epoch"] == 3:
            raise BreakError

    with pytest.raises(BreakError):
        tiny(epochs=9, out=tmp_path / "run", listener=Hearing(record=observe))
    kept, short = Run.load(tmp_path / "run", "cpu"), tiny(epochs=2)
    assert kept.best_epoch == short.best_epoch
    assert equal_parameters(kept.model.state_dict(), short.model.state_dict())


def test_pretrained_parameters_are_the_start(tmp_path):
    before = tiny(epochs=5, seed=1, out=tmp_path / "before")
    settings = {"pretrain": str(tmp_path / "before"), "seed": 9, "epochs": 1}
    after = tiny(**settings, lr=1e-12)
    for name, table in after.model.named_parameters():
        torch.testing.assert_close(table, before.model.state_dict()[name], atol=1e-9, rtol=0)
    moved = tiny(**settings, sampler="bernoulli")
    assert not equal_parameters(moved.model.state_dict(), before.model.state_dict())
    # Of the run it starts from, nothing changes.
    again = Run.load(tmp_path / "before", "cpu")
    assert equal_parameters(again.model.state_dict(), before.model.state_dict())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"model": "TransH"}, "its model: TransE, here TransH"),
        ({"dim": 5}, "its dim: 4, here 5"),
        ({"graph": random_graph(entities=14, train=60)}, "its entities: not the same"),
        ({"graph": random_graph(entities=15, relations=2)}, "its relations: not the same"),
    ],
)
def test_pretrained_parameters_that_do_not_fit(settings, complaint, tmp_path):
    tiny(out=tmp_path / "before")
    with pytest.raises(UserError, match=complaint):
        tiny(**settings, pretrain=str(tmp_path / "before"))


# What cannot be trained.


def test_a_graph_without_training_triples():
    with pytest.raises(UserError, match="graph has no training triples"):
        tiny(graph_of([], test=[(0, 0, 1)]))


def test_no_cuda_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == CPU
    with pytest.raises(UserError, match="device cuda"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"model": "TransX"}, "unknown model 'TransX'"),
        ({"sampler": "gan"}, "unknown sampler 'gan'"),
        ({"dims": 3}, "unknown key 'dims'"),
        ({"n1": 16}, "n1 16 is larger than the number of entities, 15"),
    ],
)
def test_wrong_settings(settings, complaint):
    with pytest.raises(UserError, match=complaint):
        tiny(**settings)


def test_names_are_found_in_any_case():
    run = tiny(model="transe", sampler="NSCaching")
    assert (run.config.model, run.config.sampler) == ("TransE", "nscaching")


def test_compiling_is_no_training(monkeypatch):
    now, compiling = 10.0, 3.0
    monkeypatch.setattr("nscaching.training.epoch.time.perf_counter", lambda: now)
    meter = EpochMeter(CPU, lambda: compiling)
    now, compiling = 17.0, 8.0
    assert meter.clock() == 2.0
    now += 1
    assert meter.clock() == 3.0
    now, compiling = now + 5, compiling + 5
    meter.start_clock()
    assert meter.clock() == 3.0


def test_numba_tells_how_long_it_compiled():
    numba = pytest.importorskip("numba")
    kernels = choose_kernels("numba", CPU)
    before = kernels.compile_seconds()
    assert numba.njit(lambda x: x + 1)(1) == 2
    assert kernels.compile_seconds() > before
    assert Kernels().compile_seconds() == 0


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"sampler": "kbgan"}, 1),
        ({"sampler": "nscaching"}, 1),
        ({"sampler": "nscaching", "draw": "top"}, 3),
        ({"sampler": "bernoulli", "filter_known": True}, 3),
        ({"sampler": "kbgan", "generator": "RotatE"}, 1),
        ({"sampler": "kbgan", "generator": "TransR"}, 3),
        ({"model": "RotatE"}, 1),
        ({"model": "TransR"}, 3),
        ({"kernels": "reference"}, 3),
    ],
)
def test_torch_has_one_thread_while_compiled_loops_train(settings, count):
    seen = set()
    asked = {**TINY, "kernels": "numba", "threads": 3, **settings}
    with threads(3):
        trainer = Trainer(GRAPH, TrainConfig.from_dict(asked))
        step = trainer.step
        trainer.step = lambda rows: (seen.add(torch.get_num_threads()), step(rows))
        trainer.epoch(1)
        assert torch.get_num_threads() == 3
    assert seen == {count}
