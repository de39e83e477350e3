"""The cache in the real PyKEEN."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pykeen")

from pykeen.models import ERModel, TransE, model_resolver
from pykeen.pipeline import pipeline
from pykeen.sampling import BasicNegativeSampler
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import TriplesFactory

from helpers import random_graph
from nscaching import UserError
from nscaching.data.index import Side
from nscaching.models import Form
from nscaching.pykeen import NSCachingNegativeSampler, NSCachingTrainingLoop, _Scores, scores_of

pytestmark = pytest.mark.filterwarnings("ignore")  # what PyKEEN and its libraries warn of

GRAPH = random_graph(entities=30, train=150)
SPLITS = {
    name: TriplesFactory(
        torch.from_numpy(GRAPH.split(split)).long(),
        entity_to_id={name: i for i, name in enumerate(GRAPH.entities)},
        relation_to_id={name: i for i, name in enumerate(GRAPH.relations)},
    )
    for name, split in (("training", "train"), ("testing", "test"), ("validation", "valid"))
}


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSTOW_HOME", str(tmp_path))


def run(
    model="TransE", sampler="nscaching", epochs=2, loop=None, options=None, probes=False, **training
):
    """Train in PyKEEN's pipeline, which looks for a batch size by more epochs if it ``probes``."""
    cache = {"n1": 5, "n2": 4} if sampler == "nscaching" else {}
    return pipeline(
        **SPLITS,
        model=model,
        model_kwargs={"embedding_dim": 8} | (options or {}),
        negative_sampler=sampler,
        negative_sampler_kwargs=cache,
        training_loop=loop,
        training_loop_kwargs={} if probes else {"automatic_memory_optimization": False},
        training_kwargs={"num_epochs": epochs, "batch_size": 32, "use_tqdm": False, **training},
        evaluation_kwargs={"batch_size": 32, "use_tqdm": False},
        random_seed=1,
        device="cpu",
    )


def new(model, **options):
    """Make a model of PyKEEN with random parameters."""
    sizes = {"embedding_dim": 8, "triples_factory": SPLITS["training"], "random_seed": 1}
    return model_resolver.make(model, {**sizes, **options})


def test_the_program_of_the_page_runs():
    page = (Path(__file__).parents[1] / "docs" / "pykeen.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(compile(program.replace("num_epochs=5", "num_epochs=1"), "pykeen.md", "exec"), names)
    assert isinstance(names["result"].training_loop._sampler, NSCachingNegativeSampler)


@pytest.mark.parametrize("model", ["TransE", "RotatE", "ConvE", "TransH", "SimplE"])
def test_naming_the_sampler_is_enough(model):
    result = run(model, probes=True)
    loop = result.training_loop
    assert isinstance(loop, NSCachingTrainingLoop)
    cache = loop._sampler.cache
    fresh = NSCachingNegativeSampler(
        mapped_triples=SPLITS["training"].mapped_triples, num_entities=30,
        num_relations=len(GRAPH.relations), n1=5, n2=4,
    )  # fmt: skip
    fresh.bind(result.model)
    assert not torch.equal(cache.rows[Side.TAIL], fresh.cache.rows[Side.TAIL])
    assert np.isfinite(result.losses).all()
    assert 0 < result.get_metric("mrr") <= 1


def test_the_negatives_are_cached_entities():
    result = run()
    loop, triples = result.training_loop, SPLITS["training"].mapped_triples
    sampler = loop._sampler
    sampler.num_negs_per_pos = 3
    held = {side: rows.clone() for side, rows in sampler.cache.rows.items()}
    negatives = sampler.corrupt_batch(triples[:40])
    assert negatives.shape == (40, 3, 3)
    keys = sampler.cache.batch(*triples[:40].T)
    heads = 0
    for row, (triple, false) in enumerate(zip(triples.tolist(), negatives.tolist(), strict=False)):
        side = Side.TAIL if all(one[0] == triple[0] for one in false) else Side.HEAD
        heads += side is Side.HEAD
        column = 0 if side is Side.HEAD else 2
        assert all(one[1] == triple[1] and one[2 - column] == triple[2 - column] for one in false)
        assert {one[column] for one in false} <= set(held[side][keys.key(side)[row]].tolist())
    assert 0 < heads < 40


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("TransE", {"scoring_fct_norm": 1}),
        ("TransE", {"scoring_fct_norm": 2}),
        ("DistMult", {}),
        ("ComplEx", {}),
        ("RotatE", {}),
    ],
)
def test_compiled_forms_agree_with_the_model_s_scores(model, options):
    made = new(model, **options)
    fast, plain = scores_of(made), _Scores(made)
    assert fast.form is not None
    assert plain.form is None
    anchor, relation = torch.arange(12), torch.arange(12) % len(GRAPH.relations)
    candidates = torch.randint(30, (12, 7))
    for side in Side:
        with torch.no_grad():
            expected = plain.score_candidates(side, anchor, relation, candidates)
            rows, query = fast.table(), fast.query(side, anchor, relation)
        if fast.form is Form.DOT:
            found = (rows[candidates] * query.unsqueeze(1)).sum(-1)
        else:
            distance = rows[candidates] - query.unsqueeze(1)
            found = -torch.linalg.vector_norm(distance, ord=fast.metric, dim=-1)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        broadcast = plain._score_broadcast(side, anchor, relation, candidates)
        torch.testing.assert_close(broadcast, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "options"), [("TransE", {"power_norm": True}), ("TransH", {}), ("ConvE", {})]
)
def test_other_models_are_scored_by_themselves(model, options):
    trained = run(model, options=options, epochs=1).model
    assert isinstance(trained, ERModel)
    assert scores_of(trained).form is None


def test_a_refresh_leaves_the_model_as_it_was():
    """Batch normalization counts what it sees in training: candidates must not count."""
    sampler = run("ConvE", epochs=1).training_loop._sampler
    model = sampler.score.pykeen
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sampler.corrupt_batch(SPLITS["training"].mapped_triples[:20])
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_other_samplers_train_as_in_the_plain_loop():
    ours, plain = run(sampler="basic"), run(sampler="basic", loop=SLCWATrainingLoop)
    assert type(plain.training_loop) is SLCWATrainingLoop
    assert isinstance(ours.training_loop, NSCachingTrainingLoop)
    assert ours.losses == plain.losses
    assert ours.training_loop.negative_sampler is BasicNegativeSampler


def test_a_checkpoint_keeps_the_cache(tmp_path):
    places = {"checkpoint_directory": tmp_path, "checkpoint_frequency": 0}
    whole = run(epochs=4, probes=True)
    run(epochs=2, probes=True, checkpoint_name="c.pt", **places)
    resumed = run(epochs=4, probes=True, checkpoint_name="c.pt", **places)
    assert resumed.losses == whole.losses
    ours, theirs = (result.training_loop._sampler.cache for result in (resumed, whole))
    for side in Side:
        assert torch.equal(ours.rows[side], theirs.rows[side])


def test_the_plain_loop_is_refused():
    with pytest.raises(UserError, match='leave out training_loop, or give training_loop="nscach'):
        run(loop="slcwa")


def test_workers_are_refused():
    with pytest.raises(UserError, match="give num_workers=0"):
        run(num_workers=1)


def test_training_that_continues_keeps_the_cache():
    training = SPLITS["training"]
    model = TransE(triples_factory=training, embedding_dim=8, random_seed=1)
    loop = NSCachingTrainingLoop(
        model=model, triples_factory=training, optimizer=torch.optim.Adam(model.parameters()),
        negative_sampler="nscaching", negative_sampler_kwargs={"n1": 5, "n2": 4},
    )  # fmt: skip
    options = {"batch_size": 32, "use_tqdm": False}
    loop.train(training, num_epochs=2, **options)
    steps = int(loop._sampler.cache.draws.tick)
    loop.train(training, num_epochs=3, continue_training=True, **options)
    assert int(loop._sampler.cache.draws.tick) == steps * 3 // 2


def test_a_model_that_keeps_the_embeddings_of_a_pass_learns():
    """RGCN's embeddings of a refresh have no gradient: the gradient step must not take them."""
    start, trained = (run("RGCN", epochs=epochs).model.state_dict() for epochs in (1, 3))
    changed = [not torch.equal(start[name], trained[name]) for name in start]
    assert sum(changed) > len(changed) / 2


def test_relations_that_do_more_than_turn_have_no_compiled_form():
    made = new("RotatE")
    assert scores_of(made).form is not None
    with torch.no_grad():
        for table in made.relation_representations[0].parameters():
            table.mul_(2)
    assert scores_of(made).form is None
