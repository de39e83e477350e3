"""Probes say what an independent count says, change nothing, and leave files that come back."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import threading
import time
import tomllib

import numpy as np
import pytest
import torch

from helpers import TINY, TWINS, Hearing, epochs_of, graph_of, new_kernels, random_graph
from nscaching import ProbeConfig, Run, TrainConfig, UserError, resume, train
from nscaching.cli import main as cli
from nscaching.data.index import Side
from nscaching.errors import Stopped
from nscaching.files import CannotWriteError
from nscaching.kernels import Kernels
from nscaching.probes import meters, probes
from nscaching.probes.files import Snapshots, save_snapshot
from nscaching.training import recorder
from nscaching.training.recorder import Recorder
from nscaching.training.trainer import Trainer

GRAPH = random_graph(entities=15, train=60, valid=12, test=12)
EVERYTHING = ProbeConfig(
    probe_repeats=2,
    probe_changes=True,
    probe_test=True,
    watch=3,
    watch_triple=("e0\tr1\te2",),
    watch_every=2,
    snapshots=(0, 2, 3),
)
paths = pytest.mark.parametrize("kernels", ["reference", "numba"])


def tiny(graph=GRAPH, probes=None, out=None, **settings) -> Run:
    return train(graph, **{**TINY, **settings}, probes=probes, out=out)


def new_trainer(graph=GRAPH, probes=None, **settings) -> Trainer:
    return Trainer(graph, TrainConfig.from_dict({**TINY, **settings}), probes=probes)


# Repeat ratio.


def overhear(trainer):
    """Return a list to which all negatives of a training are added as (h, r, t)."""
    heard, sample = [], trainer.sampler.sample

    def overheard(batch, model):
        negatives = sample(batch, model)
        for r, heads, tails in zip(
            batch.relation.tolist(), negatives.head.tolist(), negatives.tail.tolist(), strict=True
        ):
            heard.extend((h, r, t) for h, t in zip(heads, tails, strict=True))
        return negatives

    trainer.sampler.sample = overheard
    return heard


@paths
@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "bernoulli"},
        {"sampler": "nscaching"},
        {"sampler": "nscaching", "negatives": 3, "draw": "importance"},
        {"sampler": "nscaching", "negatives": 3},
        {"sampler": "self-adversarial", "negatives": 3},
        {"sampler": "kbgan"},
    ],
    ids=str,
)
def test_the_repeat_ratio_is_that_of_a_slow_count(kernels, settings):
    asked = ProbeConfig(probe_repeats=3)
    trainer = new_trainer(probes=asked, kernels=kernels, epochs=7, **settings)
    heard = overhear(trainer)
    found = {}
    for epoch in range(1, 8):
        record = trainer.epoch(epoch)
        if "repeat_ratio" in record:
            count = settings.get("negatives", 1)
            assert len(heard) == 3 * count * len(GRAPH.train)
            seen, again = set(), 0
            for triple in heard:
                again += triple in seen
                seen.add(triple)
            found[epoch] = record["repeat_ratio"], again / len(heard)
            heard.clear()
    assert found.keys() == {3, 6}
    for ratio, expected in found.values():
        assert ratio == pytest.approx(expected)
        assert 0 < ratio < 1


def test_of_very_many_negatives_a_part_is_looked_at_with_all_its_repeats(monkeypatch):
    monkeypatch.setattr(meters, "MOST_KEPT", 50)
    trainer = new_trainer(probes=ProbeConfig(probe_repeats=2), sampler="bernoulli")
    heard = overhear(trainer)
    trainer.epoch(1)
    found = trainer.epoch(2)["repeat_ratio"]
    entities, parts = len(GRAPH.entities), 3  # 2 · 60 negatives, 50 of which may be kept
    spread = 0x9E3779B97F4A7C15

    def part(h, r, t):
        code = ((r * entities + h) * entities + t) * spread % 2**64
        return ((code - 2**64 if code >= 2**63 else code) >> 32) % parts

    looked_at = [triple for triple in heard if part(*triple) == 0]
    assert 0 < len(looked_at) < len(heard)
    assert found == pytest.approx(1 - len(set(looked_at)) / len(looked_at))


# Changed elements.


@paths
@pytest.mark.parametrize("settings", [{}, {"candidates": "slots"}, {"draw": "top"}], ids=str)
def test_changed_elements_are_those_of_sets(kernels, settings):
    asked = ProbeConfig(probe_changes=True)
    trainer = new_trainer(probes=asked, kernels=kernels, lazy=1, **settings)

    def look():
        return {
            side: [set(row) for row in trainer.sampler.cache.rows[side].tolist()] for side in Side
        }

    before = look()
    for epoch in range(1, 5):
        found = trainer.epoch(epoch)["changed_elements"]
        now = look()
        expected = np.mean(
            [
                np.mean([len(new - old) for old, new in zip(before[s], now[s], strict=True)])
                for s in Side
            ]
        )
        assert found == pytest.approx(expected)
        assert (found == 0) == (epoch % 2 == 0)  # every other epoch is lazy
        before = now


@pytest.mark.parametrize("kernels", ["reference", *TWINS])
@pytest.mark.parametrize("size", [1, 2, 6, 40])
def test_new_elements(kernels, size):
    random = torch.Generator().manual_seed(size)
    before, ids = torch.randint(2 * size, (2, 30, size), generator=random, dtype=torch.int32)
    before[0], ids[7] = 1, 0  # an entity may be number 0, and stand in all places
    keys, counts = torch.arange(30).roll(-7), torch.full((30,), -1.0).double()
    pairs = zip(before.tolist(), ids[keys].tolist(), strict=True)
    expected = [len(set(new) - set(old)) for old, new in pairs]
    new_kernels(kernels).new_elements(ids, keys, before, counts)
    assert counts.tolist() == expected
    assert expected[0] == 1
    assert torch.equal(before, ids[keys])


def test_of_many_keys_a_sample_is_looked_at_that_the_seed_decides(monkeypatch):
    monkeypatch.setattr(meters, "KEYS", 7)
    one, same, other = (
        meters.ChangeMeter(new_trainer().sampler.cache.rows, seed, Kernels()).keys
        for seed in (1, 1, 2)
    )
    for side in Side:
        assert len(set(one[side].tolist())) == 7
        assert one[side].tolist() == same[side].tolist()
    assert any(one[side].tolist() != other[side].tolist() for side in Side)


# Watched triples.


@paths
@pytest.mark.parametrize("model", ["TransD", "ComplEx"])
def test_differences_are_those_of_scores_by_hand(kernels, model):
    graph = graph_of(
        GRAPH.train, GRAPH.valid, GRAPH.test, entities=15, relations=3, labels={"e3": "Three"}
    )
    known = {tuple(t) for split in ("train", "valid", "test") for t in graph.split(split).tolist()}
    asked = ProbeConfig(watch=2, watch_triple=("Three\tr2\te3",), watch_every=1)
    trainer = new_trainer(graph, asked, model=model, kernels=kernels)
    trainer.epoch(1)
    lines = trainer.probes.look(1).scores
    assert len(lines) == 2 * 3
    assert {line["side"] for line in lines} == {"head", "tail"}
    assert ("e3", "r2", "e3") in {(s["head"], s["relation"], s["tail"]) for s in lines}
    for line in lines:
        h, r, t = (int(line[part][1:]) for part in ("head", "relation", "tail"))
        side = line["side"]
        others = [(e, r, t) if side == "head" else (h, r, e) for e in range(15)]
        negatives = [triple for triple in others if triple not in known | {(h, r, t)}]
        with torch.no_grad():
            rows = torch.tensor([(h, r, t), *negatives]).T
            positive, *scores = trainer.model.score(*rows).double().tolist()
        expected = np.array(scores) - positive
        quantiles = np.quantile(expected, np.linspace(0, 1, 201))
        assert line["differences"] == pytest.approx(quantiles.tolist(), abs=2e-5)
        assert line["top"] == pytest.approx(sorted(expected, reverse=True)[:100], abs=2e-5)
        assert line["epoch"] == 1
        assert line["margin"] == (TINY["margin"] if model == "TransD" else None)


def test_the_hundred_largest_are_kept_and_chunks_change_nothing(monkeypatch):
    graph = random_graph(entities=120, train=60)
    trainer = new_trainer(graph, ProbeConfig(watch=5))
    whole = trainer.probes.look(0).scores
    assert {len(line["top"]) for line in whole} == {100}
    assert all(line["top"] == sorted(line["top"], reverse=True) for line in whole)
    monkeypatch.setattr("nscaching.probes.probes.chunk_size", lambda model: 2)
    assert trainer.probes.look(0).scores == whole


def test_a_triple_without_negatives_on_a_side_has_no_line_there():
    graph = graph_of([(0, 0, 0), (0, 0, 1), (0, 0, 2)], entities=3)
    trainer = new_trainer(graph, ProbeConfig(watch=3), n1=2)
    lines = trainer.probes.look(0).scores
    assert [line["side"] for line in lines] == ["head"] * 3
    assert all(len(line["top"]) == 2 for line in lines)


def test_the_epochs_that_are_watched():
    asked = ProbeConfig(watch=2, watch_every=2)
    assert [s["epoch"] for s in tiny(probes=asked, epochs=5).scores[::4]] == [0, 2, 4, 5]
    stopped = tiny(probes=asked, epochs=50, patience=1)
    last = max(record["epoch"] for record in epochs_of(stopped))
    assert last < 50
    assert stopped.scores[-1]["epoch"] == last
    assert len(stopped.scores) == 4 * len({s["epoch"] for s in stopped.scores})  # each once


# Snapshots.


def test_snapshots_are_the_cache_of_their_epochs_and_come_back(tmp_path):
    asked = ProbeConfig(snapshots=(4, 2, 0, 2))
    run = tiny(probes=asked, epochs=4, out=tmp_path / "run")
    again = Run.load(run.save(tmp_path / "again"))
    in_memory = tiny(probes=asked, epochs=4)
    start = new_trainer(epochs=4).sampler.state()
    for found in (run, Run.load(run.path), again, in_memory):
        assert list(found.snapshots) == [0, 2, 4]
        for epoch, state in ((0, start), (2, tiny(epochs=2).sampler_state), (4, run.sampler_state)):
            snapshot = found.snapshots[epoch]
            assert snapshot.keys() == {"head_cache", "tail_cache"}
            for name, ids in snapshot.items():
                assert ids.dtype == torch.int32
                assert torch.equal(ids, state[name])
    names = {file.name for file in (tmp_path / "run" / "snapshots").iterdir()}
    assert names == {f"cache-00000{epoch}.safetensors" for epoch in (0, 2, 4)}


def test_training_goes_on_while_a_snapshot_is_written_and_checkpoints_wait_for_it(
    tmp_path, monkeypatch
):
    path, trained, written = tmp_path / "run", threading.Event(), []

    def write_slowly(folder, epoch, cache):
        assert trained.wait(60)  # for the epoch after, which does not wait for this
        time.sleep(0.3)
        save_snapshot(folder, epoch, cache)
        written.append(epoch)

    def hear(record):
        if record["epoch"] == 2 and "split" not in record:
            assert not written
            trained.set()

    checkpoints = []
    save = Recorder._save
    monkeypatch.setattr(recorder, "save_snapshot", write_slowly)
    monkeypatch.setattr(
        Recorder, "_save", lambda self: (checkpoints.append(list(written)), save(self))
    )
    with pytest.raises(Stopped, match="to resume"):
        train(
            GRAPH, **{**TINY, "epochs": 4}, out=path,
            listener=Hearing(record=hear, stop=trained.is_set), probes=ProbeConfig(snapshots=(1,)),
        )  # fmt: skip
    assert checkpoints == [[1]]
    assert list(Snapshots(path)) == [1]


@pytest.mark.parametrize("fails", [1, 2, 4])
@pytest.mark.parametrize("every", [0, 1e-9])
def test_a_snapshot_that_cannot_be_written_stops_a_training(tmp_path, monkeypatch, fails, every):
    def refuse(folder, epoch, cache):
        if epoch == fails:
            time.sleep(0.2)  # nobody hears of it at once
            raise CannotWriteError(f"{folder}: cannot write it: No space left on device")
        save_snapshot(folder, epoch, cache)

    monkeypatch.setattr(recorder, "save_snapshot", refuse)
    with pytest.raises(UserError, match="No space left"):
        train(
            GRAPH, **{**TINY, "epochs": 4}, probes=ProbeConfig(snapshots=(1, 2, 4)),
            out=tmp_path / "run", checkpoint_every=every,
        )  # fmt: skip


def test_a_failed_snapshot_is_heard_of_an_epoch_later(tmp_path, monkeypatch):
    def refuse(folder, epoch, cache):
        raise CannotWriteError("No space left on device")

    def hear(record):
        threads = [thread for thread in threading.enumerate() if "snapshots" in thread.name]
        if record["epoch"] == 2 and threads:
            time.sleep(0.2)  # let the thread fail

    monkeypatch.setattr(recorder, "save_snapshot", refuse)
    heard = []
    with pytest.raises(UserError, match="No space left"):
        train(
            GRAPH, **{**TINY, "epochs": 40, "validate_every": 0}, out=tmp_path / "run",
            probes=ProbeConfig(snapshots=(1,)), checkpoint_every=0,
            listener=Hearing(record=lambda record: (hear(record), heard.append(record))),
        )  # fmt: skip
    assert len(heard) < 40
    assert not [thread for thread in threading.enumerate() if "snapshots" in thread.name]


def test_a_checkpoint_waits_for_a_snapshot(tmp_path, monkeypatch):
    written, checkpoints = [], []

    def write_slowly(folder, epoch, cache):
        time.sleep(0.3)
        save_snapshot(folder, epoch, cache)
        written.append(epoch)

    save = Recorder._save
    monkeypatch.setattr(recorder, "save_snapshot", write_slowly)
    monkeypatch.setattr(
        Recorder, "_save", lambda self: (checkpoints.append(list(written)), save(self))
    )
    train(
        GRAPH, **{**TINY, "epochs": 3}, probes=ProbeConfig(snapshots=(0,)), out=tmp_path / "run",
        checkpoint_every=1e-9,
    )  # fmt: skip
    assert checkpoints
    assert all(before == [0] for before in checkpoints)


class Far:
    """A tensor of some bytes that says that it is on a GPU."""

    is_cuda, device, nbytes = True, "cuda", 100

    def clone(self):
        return "there"

    def cpu(self):
        return "here"


@pytest.mark.parametrize(("free", "where"), [(799, "here"), (800, "there")])
def test_a_snapshot_is_copied_on_the_gpu_where_much_room_is_left(monkeypatch, free, where):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10_000))
    assert probes._copy(Far()) == where


def test_what_a_gpu_holds_of_a_snapshot_is_free_before_the_disk_has_it(tmp_path, monkeypatch):
    cache = {"head_cache": torch.ones(2, 2), "tail_cache": torch.zeros(3, 2)}
    expected, held = dict(cache), []
    save = recorder.save_snapshot
    monkeypatch.setattr(
        recorder, "save_snapshot", lambda *given: (held.append(len(cache)), save(*given))
    )
    recorder._save_snapshot(tmp_path, 4, cache)
    assert held == [0]
    found = Snapshots(tmp_path)[4]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


# The whole.


@paths
@pytest.mark.parametrize("settings", [{}, {"model": "ComplEx", "negatives": 3}], ids=str)
def test_probes_do_not_change_a_run(kernels, settings):
    def plain(run):
        new = ("repeat_ratio", "changed_elements")
        return [
            {k: v for k, v in record.items() if "seconds" not in k and k not in new}
            for record in run.history
            if not record.get("traced")
        ]

    with_ = tiny(probes=EVERYTHING, kernels=kernels, epochs=4, **settings)
    without = tiny(kernels=kernels, epochs=4, **settings)
    assert plain(with_) == plain(without)
    assert with_.result("test").keys() == without.result("test").keys()
    for one, other in (
        (with_.model.state_dict(), without.model.state_dict()),
        (with_.sampler_state, without.sampler_state),
    ):
        assert all(torch.equal(one[name], other[name]) for name in other)
    assert all(record["changed_elements"] > 0 for record in epochs_of(with_))
    assert [r["epoch"] for r in epochs_of(with_) if "repeat_ratio" in r] == [2, 4]


def test_traced_rankings_are_apart_from_the_final_one():
    run = tiny(probes=ProbeConfig(probe_test=True), epochs=4, validate_every=2)
    traced = [r for r in run.history if r.get("traced")]
    assert [(r["split"], r["epoch"]) for r in traced] == [("test", 2), ("test", 4)]
    assert run.history[-1] == run.result("test")
    assert "traced" not in run.result("test")
    same = next(r for r in traced if r["epoch"] == run.best_epoch)
    assert same["mrr"] == run.result("test")["mrr"]
    run.history.pop()  # as if it had been stopped before the end
    assert run.result("test") is None


@pytest.mark.parametrize("splits", ["train", "test"])
def test_a_graph_without_validation(splits):
    graph = graph_of(GRAPH.train, test=GRAPH.test if splits == "test" else ())
    asked = dataclasses.replace(EVERYTHING, probe_test=splits == "test")
    run = tiny(graph, asked, epochs=4)
    assert [r["epoch"] for r in run.history if r.get("traced")] == (
        [1, 2, 3, 4] if splits == "test" else []
    )
    assert list(run.snapshots) == [0, 2, 3]
    assert {s["epoch"] for s in run.scores} == {0, 2, 4}


def test_what_is_off_is_not_there(tmp_path):
    assert not ProbeConfig().on
    run = tiny(probes=ProbeConfig(), epochs=1, out=tmp_path / "run")
    assert not new_trainer(probes=ProbeConfig()).probes.checkpoint()
    assert "probes" not in tomllib.loads((run.path / "config.toml").read_text())
    loaded = Run.load(run.path)
    assert (loaded.probes, loaded.scores, dict(loaded.snapshots)) == (ProbeConfig(), [], {})


@pytest.mark.parametrize(
    ("asked", "settings", "message"),
    [
        ({"probe_repeats": -1}, {}, "probe_repeats must be at least 0, not -1"),
        ({"probe_repeats": 9}, {}, "probe_repeats 9 is more than epochs 2"),
        ({"probe_repeats": 1}, {"sampler": "none"}, "probe_repeats: sampler none has no neg"),
        ({"probe_changes": True}, {"sampler": "kbgan"}, "probe_changes: sampler kbgan keeps"),
        ({"probe_changes": 1}, {}, "probe_changes must be of type bool, not 1"),
        ({"snapshots": (1,)}, {"sampler": "bernoulli"}, "snapshots: sampler bernoulli keeps"),
        ({"snapshots": (0, 3)}, {}, "snapshots 3 is beyond epochs 2"),
        ({"snapshots": (-1,)}, {}, "snapshots must be at least 0, not -1"),
        ({"snapshots": 3}, {}, "snapshots must be a list, not 3"),
        ({"snapshots": ("x",)}, {}, "snapshots must be of type int, not 'x'"),
        ({"probe_test": True}, {"validate_every": 0}, "probe_test goes with validation: give"),
        ({"watch": 61}, {}, "watch 61: graph has 60 training triples"),
        ({"watch_every": 0}, {}, "watch_every must be at least 1, not 0"),
        ({"watch_triple": ("e0 r0 e1",)}, {}, "watch_triple 'e0 r0 e1' must be head, tab, rel"),
        ({"watch_triple": ("e0\tr0\tx",)}, {}, "unknown entity 'x'; known: e0, e1, "),
        ({"watch_triple": ("e0\tx\te1",)}, {}, "unknown relation 'x'; known: r0, r1, r2"),
    ],
)
def test_what_does_not_go_is_one_line(asked, settings, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        tiny(probes=ProbeConfig(**asked), **settings)
    assert "\n" not in str(error.value)


def test_how_often_to_watch_needs_something_to_watch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("[probes]\nwatch-every = 3\n")
    for every, words in [
        (1, ["--watch-every", "1"]),
        (7, ["--watch-every=7", "--snapshots", "0"]),
        (7, ["--watch-every", "7", "--watch", "0"]),
        (3, ["--config", "mine.toml"]),
    ]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["train", "no-such-data", *words])  # before data are looked for
        assert stop.value.code == 2
        assert capsys.readouterr() == (
            "",
            f"nscaching: --watch-every {every} goes with watched triples: "
            "give --watch or --watch-triple too\n",
        )
    for words in (["--watch", "1"], ["--watch-triple", "e0\tr0\te1"], ["--watch-every", "20"]):
        asked = cli._parse("train", ["world", "--watch-every", "1", *words]).probes
        asked.check(TrainConfig(epochs=2))


@pytest.mark.parametrize("every", [20, 5])  # the default, and what older runs may say
def test_a_run_that_says_how_often_and_watches_nothing_goes_on(tmp_path, every):
    path, heard = tmp_path / "run", []
    asked = ProbeConfig(snapshots=(0, 2), watch_every=every)
    stop = Hearing(record=heard.append, stop=lambda: len(heard) > 1)
    with pytest.raises(Stopped):
        tiny(probes=asked, epochs=3, out=path, listener=stop)
    assert f"watch_every = {every}\n" in (path / "config.toml").read_text(encoding="utf-8")
    run = resume(path)
    assert (run.probes, list(run.snapshots), run.scores) == (asked, [0, 2], [])


def test_tracing_needs_test_triples():
    with pytest.raises(UserError, match="probe_test: graph has no test triples"):
        tiny(graph_of(GRAPH.train, GRAPH.valid), ProbeConfig(probe_test=True))


def test_more_negatives_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(meters, "MOST_OF_AN_EPOCH", 59)
    with pytest.raises(UserError, match="takes 1 to 59 negatives in an epoch, not 60"):
        tiny(probes=ProbeConfig(probe_repeats=2))


# Files and flags.


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    return tiny(probes=EVERYTHING, epochs=4, out=tmp_path_factory.mktemp("runs") / "probed")


def test_a_probed_run_comes_back(probed):
    loaded = Run.load(probed.path)
    assert (loaded.probes, loaded.scores) == (EVERYTHING, probed.scores)
    lines = (probed.path / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == probed.scores
    table = tomllib.loads((probed.path / "config.toml").read_text(encoding="utf-8"))["probes"]
    assert table == json.loads(json.dumps(EVERYTHING.to_dict()))
    assert "snapshots/" in (probed.path / "README.md").read_text(encoding="utf-8")


def test_flags_and_the_table_of_a_file(probed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    card = (probed.path / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    nscaching (train .*)$", card, re.MULTILINE)
    command = command.replace(r"$'e0\x09r1\x09e2'", "'e0\tr1\te2'")  # as a shell reads it
    assert cli._parse("train", shlex.split(command)[1:]).probes == EVERYTHING
    file = ["--config", str(probed.path / "config.toml")]
    assert cli._parse("train", ["world", *file]).probes == EVERYTHING
    changed = cli._parse("train", ["world", *file, "--snapshots", "1", "--no-probe-test"]).probes
    assert changed == dataclasses.replace(EVERYTHING, snapshots=(1,), probe_test=False)
    (tmp_path / "mine.toml").write_text("[probes]\nwatch-every = 3\nwatch = 1\n")
    mine = cli._parse("train", ["world", "--config", "mine.toml"])
    assert mine.probes == ProbeConfig(watch=1, watch_every=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("probes = 3", "mine.toml: probes must be a table, not 3"),
        ("[probes]\nwatches = 3", "mine.toml: probes: unknown key 'watches'; known: probe_repeats"),
        ("[probes]\nwatch = 'x'", "mine.toml: probes: watch must be of type int, not 'x'"),
        ("[probes]\nsnapshots = 3", "mine.toml: probes: snapshots must be a list, not 3"),
        ("[probes]\nwatch-every = 1\nwatch_every = 2", "probes: watch-every is given twice"),
    ],
)
def test_a_table_that_is_wrong(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        cli._parse("train", ["world", "--config", str(tmp_path / "mine.toml")])


def test_overwriting_takes_old_probes_away_and_nothing_else(probed, tmp_path):
    path = shutil.copytree(probed.path, tmp_path / "run")
    (path / "snapshots" / "cache-000009.safetensors.partial").write_bytes(b"left by a crash")
    (path / "snapshots" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"not overwritten: it holds mine\.txt"):
        train(GRAPH, **TINY, out=path, overwrite=True)
    (path / "snapshots" / "mine.txt").unlink()
    train(GRAPH, **TINY, out=path, overwrite=True)
    assert not {"snapshots", "scores.jsonl"} & {file.name for file in path.iterdir()}


def test_a_link_of_the_name_of_snapshots_is_not_overwritten(probed, tmp_path):
    path = shutil.copytree(probed.path, tmp_path / "run")
    (path / "snapshots").rename(tmp_path / "mine")
    (path / "snapshots").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="not overwritten: it holds snapshots"):
        train(GRAPH, **TINY, out=path, overwrite=True)


@pytest.mark.parametrize("line", ['{"epoch": 1}', '{"epoch"', "7"])
def test_damaged_scores_are_named(probed, tmp_path, line):
    path = shutil.copytree(probed.path, tmp_path / "run")
    (path / "scores.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"scores\.jsonl:1: (not a line of scores|cannot read it)"):
        Run.load(path)
