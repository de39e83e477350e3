"""What an interpreter runs, a compiler has to take: Triton's kernels, for a GPU not there."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

# Imported here, before it is told to interpret, Triton would not do so in other tests.
HERE = importlib.util.find_spec("triton")
SCRIPT = Path(__file__).parent / "compile_for_gpu.py"
TRAININGS = [
    "model=TransD,draw=importance",
    "model=TransH,norm=2,refresh=top,candidates=slots",
    "model=ComplEx,draw=top,candidate_rows=bfloat16",
    "model=RotatE",
    "model=TransE,sampler=bernoulli,optimizer=row-adam,validate_candidates=50",
    "model=TransD,sampler=self-adversarial",
    "model=ComplEx,sampler=self-adversarial,penalty_norm=n3,optimizer=row-adagrad",
    "model=TransE,sampler=kbgan",
    "model=ComplEx,objective=softmax,tail=40,optimizer=adagrad",
    "model=RotatE,objective=softmax,tail=40,refresh=top,n1=0,optimizer=row-adagrad",
]
KERNELS = {
    "adam", "add_rows", "ask", "ask_back", "claim", "count", "distances", "draw", "draw_by_score",
    "fill", "finish", "gradients", "head", "meet_back", "new_elements", "own_score", "penalise",
    "refresh", "rows_back", "sample", "score", "shifted_distances", "slopes", "stand", "tail",
    "take", "take_known", "weigh",
}  # fmt: skip


@pytest.mark.skipif(HERE is None, reason="triton is not installed")
def test_kernels_compile_for_a_gpu(tmp_path):
    away = {"TRITON_INTERPRET", "TRITON_CACHE_DIR"}
    env = {name: value for name, value in os.environ.items() if name not in away}
    env |= {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, str(SCRIPT), *TRAININGS]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    kernels = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, _, _ in kernels} == KERNELS
    assert all(int(size) > 1000 for _, size, _ in kernels)
    # What is left out of the seconds of training is about what passed here.
    told, passed = float(done.stderr.split()[-1]), sum(float(seconds) for *_, seconds in kernels)
    assert told == pytest.approx(passed, rel=0.2)


def test_seconds_of_compiling_are_heard_beside_another_listener():
    pytest.importorskip("triton", reason="triton is not installed")
    from nscaching.kernels.gpu.replay import Stopwatch

    others = []
    knobs = SimpleNamespace(
        compilation=SimpleNamespace(listener=lambda **heard: others.append(heard))
    )
    watch = Stopwatch(knobs)
    for total in (1_500_000, 250_000):
        knobs.compilation.listener(times=SimpleNamespace(total=total), cache_hit=False)
    assert watch.seconds == 1.75
    assert [heard["times"].total for heard in others] == [1_500_000, 250_000]
