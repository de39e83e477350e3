"""Fuzzing: whatever bytes a file holds, it is read or refused in one line. `make fuzz` goes on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzzing

NAMES = [
    *(f"a.{kind}{packed}" for kind in ("tsv", "csv", "txt", "nt", "ttl", "nq")
      for packed in ("", ".gz")),
    "a.tsv by all twins", "a.txt by all twins", "labels", "negatives.tsv", "negatives.csv",
    "results.jsonl", "config.toml",
    *(f"openke {name}.txt by all twins"
      for name in ("entity2id", "relation2id", "train2id", "test2id", "valid_neg")),
    *(f"run {name}" for name in ("config.toml", "metrics.jsonl", "vocabulary.json")),
    "run calibration.json",
    *(f"run {name}.safetensors" for name in ("model", "cache", "triples")),
]  # fmt: skip


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return {reader.name: reader for reader in fuzzing.readers(tmp_path_factory.mktemp("fuzz"))}


def test_every_reader_is_fuzzed(readers):
    assert list(readers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_seeds_are_read(readers, name):
    for seed in readers[name].seeds:
        data = fuzzing.gzip.compress(seed) if name.endswith(".gz") else seed
        assert fuzzing.is_sound(readers[name], data)


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_are_read_or_refused_in_one_line(readers, name):
    @settings(
        max_examples=40,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def check(random):
        fuzzing.is_sound(readers[name], fuzzing.input_for(readers[name], random))

    check()
