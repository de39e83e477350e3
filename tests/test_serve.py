"""The explorer answers what the run answers, as pages and as JSON, and shows nothing else."""

from __future__ import annotations

import asyncio
import json
import shutil
from html.parser import HTMLParser
from urllib.parse import quote

import jsonschema
import numpy as np
import pytest

from helpers import TINY, random_graph
from nscaching import KnowledgeGraph, Run, UserError, train
from nscaching.evaluation.answers import Recall, known_answers
from nscaching.serve import pages, plane
from nscaching.serve.batching import Asked
from nscaching.serve.parameters import Parameter, read_all
from nscaching.serve.refusals import CODES, Refusal
from nscaching.serve.runs import ServedRun
from nscaching.serve.views import VIEWS
from serving import HOSTILE, MARK, Running, folders, sample_paths, service  # noqa: F401  (fixtures)

VOID = {"meta", "link", "input", "img", "br", "wbr", "rect", "circle"}


class Page(HTMLParser):
    """Reads a page: its links, and whatever a policy would not let a browser obey."""

    def __init__(self, content):
        super().__init__()
        self.open, self.links, self.forbidden = [], [], []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.forbidden += [name for name in given if name.startswith("on") or name == "style"]
        self.forbidden += (
            [tag] if tag == "style" or (tag == "script" and "src" not in given) else []
        )
        self.links += [given[name] for name in ("href", "src", "action") if name in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_view_is_a_page_and_as_described_as_json(service):  # noqa: F811
    document = json.loads(service.get("/openapi.json")[2])
    assert document["openapi"].startswith("3.1")
    asked = set()
    for path in [*sample_paths(), "/r/world/report"]:
        place = (
            path.partition("?")[0].replace("/r/world", "/r/{run}").replace("/r/hostile", "/r/{run}")
        )
        operation = document["paths"][("/api" + place).rstrip("/")]["get"]
        asked.add(operation["operationId"])
        data = json.loads(service.get("/api" + path.rstrip("/"))[2])
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(data, {**schema, "components": document["components"]})
        status, headers, body = service.get(path, accept="text/html")
        assert status == 200
        assert MARK.encode() not in body
        assert MARK not in json.dumps(data)
        if "report" in path:
            assert "← explorer" in body.decode()
        else:
            page = Page(body.decode())
            assert page.forbidden == []
            assert all(link[:1] in ("/", "#") for link in page.links)
            assert "unsafe" not in headers["content-security-policy"]
    assert asked == {view.name for view in VIEWS}


def test_links_of_a_page_lead_somewhere(service):  # noqa: F811
    for path in ("/r/hostile/entity?name=%230", "/r/hostile/relations", "/r/world/search?q=s"):
        links = set(Page(service.get(path, accept="text/html")[2].decode()).links)
        for link in sorted(links):
            if not any(word in link for word in ("/report", "#content", "/explain")):  # slow
                assert service.get(link, accept="text/html")[0] == 200, link


@pytest.mark.parametrize(
    "asked",
    [
        {"head": "Portugal", "relation": "speaks"},
        {"relation": "borders", "tail": "Spain"},
        {"head": "Portugal", "tail": "Spain"},
    ],
)
def test_answers_are_those_of_the_run(service, folders, asked):  # noqa: F811
    run = Run.load(folders / "world")
    for known, any_type in (("hide", False), ("mark", True)):
        (expected,) = run.predict(**asked, top=20, known=known, any_type=any_type).queries
        query = "&".join(f"{name}={quote(value)}" for name, value in asked.items())
        found = service.json(f"/r/world/question?{query}&top=20&known={known}&any={int(any_type)}")
        for one, other in zip(found["answers"], expected["answers"], strict=True):
            assert (one["name"], one["known"]) == (other["name"], other["known"])
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)
            assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)
        assert found["known_facts_left_out"] == expected["known_facts_left_out"]


def test_an_entity_has_its_facts_predictions_and_neighbours(service, folders):  # noqa: F811
    run = Run.load(folders / "world")
    found = service.json("/r/world/entity?name=Portugal")
    graph = run.graph
    triples = np.concatenate([graph.train, graph.valid, graph.test])
    portugal = graph.entity_id("Portugal")
    assert found["facts"] == ((triples[:, [0, 2]] == portugal).sum())
    spoken = next(g for g in found["groups"] if g["relation"]["name"] == "speaks")
    assert [other["name"] for other in spoken["others"]] == ["Portuguese"]
    expected = run.neighbours("Portugal", 10)["neighbours"]
    assert [n["name"] for n in found["neighbours"]] == [n["name"] for n in expected]
    for one, other in zip(found["neighbours"], expected, strict=True):
        assert one["cosine"] == pytest.approx(other["cosine"], abs=1e-6)
    chances = [one["probability"] for one in found["predictions"]]
    assert chances == sorted(chances, reverse=True)
    for one in found["predictions"]:
        assert not graph.holds(
            graph.ids([[one[part]["name"] for part in ("head", "relation", "tail")]])
        )


def test_search_finds_by_beginnings_of_words(service):  # noqa: F811
    def names(text):
        return [one["name"] for one in service.json(f"/r/world/search?q={quote(text)}")["entities"]]

    assert names("PORTUG")[0] == "Portugal"
    assert "South Africa" in names("afr sou")
    assert names("africa")[0] == "Africa"  # the whole name before beginnings
    assert names("acores")[0] == names("Açores")[0]
    assert names("ortugal") == []
    assert service.json("/r/world/search?q=bord")["relations"][0]["name"] == "borders"


def test_names_that_are_not_there_have_choices(service):  # noqa: F811
    cases = (
        ("/r/world/entity?name=Portuxal", 404, "unknown_name", "Portugal"),
        ("/r/hostile/entity?name=same%20label", 404, "ambiguous_name", "e1"),
        ("/r/none/entity?name=x", 404, "unknown_run", "world"),
        ("/r/world/question?head=Portugal", 400, "bad_parameter", ""),
        ("/r/world/entity", 400, "bad_parameter", ""),
        ("/r/world/question?head=a&relation=b&top=0", 400, "bad_parameter", ""),
        ("/r/world/question?head=a&relation=b&tops=1", 400, "bad_parameter", ""),
        ("/r/world/search?q=a&q=b", 400, "bad_parameter", ""),
        ("/r/world/search?q=" + "a" * 3000, 400, "bad_parameter", ""),
        ("/r/world/map?left=nan", 400, "bad_parameter", ""),
        ("/r/world/map?by=magic", 400, "bad_parameter", ""),
        ("/r/world/cache?head=Lisbon&relation=borders", 404, "not_there", ""),
        ("/nowhere", 404, "not_found", ""),
    )
    for path, status, code, choice in cases:
        found, _, body = service.get("/api" + path)
        error = json.loads(body)["error"]
        assert (found, error["code"], error["status"]) == (status, code, CODES[code][0])
        assert not choice or choice in [one["name"] for one in error["choices"]]
        assert MARK not in body.decode()
    assert service.get("/r/world/entity?name=portugal", accept="text/html")[0] == 200


def test_a_name_is_found_by_what_follows_its_last_mark(tmp_path):
    rows = [
        (f"http://example.org/x/{i}", "http://example.org/Knows", f"http://y.org#{i}")
        for i in "abc"
    ]
    graph = KnowledgeGraph.from_triples(rows, valid=[], test=[])
    run = ServedRun("x", train(graph, out=tmp_path / "x", **TINY | {"validate_every": 0}).path)
    assert asyncio.run(run.relation("knows")) == 0
    with pytest.raises(Refusal, match="no entity is called 'a'"):  # which two are
        asyncio.run(run.entity("a"))
    assert graph.relation_id("knows") == 0
    run.close()


def test_hostile_names_are_asked_for_and_shown(service):  # noqa: F811
    for number, name in enumerate(HOSTILE):
        shown = service.json(f"/r/hostile/entity?name=%23{number}")["entity"]
        assert len(shown["name"]) < 400
        assert service.json(f"/r/hostile/entity?name={quote(shown['name'])}")["entity"] == shown
        if shown["name"] == name:
            page = service.get(f"/r/hostile/entity?name={quote(name)}", accept="text/html")[2]
            assert b"<script>d" not in page
            assert b"<img src=/nothing" not in page


def test_what_goes_wrong_is_refused_without_a_path(folders, tmp_path, monkeypatch, capfd):  # noqa: F811
    folder = shutil.copytree(folders / "world", tmp_path / "a & b" / "x")
    served = ServedRun("x", folder)
    running = Running([served])

    def diverged(*_):
        raise UserError(f"{folder}/model.safetensors of {tmp_path}: not finite")

    try:
        monkeypatch.setattr("nscaching.serve.runs.ask", diverged)
        monkeypatch.setattr("nscaching.serve.report.rendered", diverged)
        for path in (
            "/r/x/question?head=Portugal&relation=speaks",
            "/r/x/report",
            "/r/x/entity?name=Peru",
        ):
            status, _, body = running.get(path)
            assert status == 404
            assert json.loads(body)["error"]["code"] == "not_there"
            assert str(tmp_path) not in body.decode()
            assert b"not finite" in body
        monkeypatch.setattr(served.names, "search", lambda *_: 1 / 0)
        status, _, body = running.get("/api/r/x/search?q=a")
        assert (status, json.loads(body)["error"]["code"]) == (500, "internal")
        assert "ZeroDivisionError" in capfd.readouterr().err
        assert b"ZeroDivision" not in body
    finally:
        running.stop()
        served.close()


def test_questions_that_wait_are_answered_at_once(folders):  # noqa: F811
    run = ServedRun("x", folders / "world")
    rows = run.graph.train[:40].tolist()
    asked = [Asked(2, (h, r, 0), 5) for h, r, _ in rows] + [
        Asked(0, (0, r, t), 3) for _, r, t in rows
    ]
    calls = []
    plain = run.batcher.answer_all
    run.batcher.answer_all = lambda some: calls.append(len(some)) or plain(some)

    async def ask_all():
        return await asyncio.gather(*map(run.batcher.ask, asked))

    together = asyncio.run(ask_all())
    assert sum(calls) == len(asked)
    assert len(calls) <= 3
    for one, answer in zip(asked, together, strict=True):
        (alone,) = plain([one])
        assert [a["name"] for a in answer["answers"]] == [a["name"] for a in alone["answers"]]
    run.close()


def test_an_error_of_one_batch_reaches_all_who_wait(folders):  # noqa: F811
    run = ServedRun("x", folders / "world")

    def fail(some):
        raise ZeroDivisionError

    run.batcher.answer_all = fail

    async def ask():
        with pytest.raises(ZeroDivisionError):
            await run.batcher.ask(Asked(2, (0, 0, 0), 5))

    asyncio.run(ask())
    run.close()


@pytest.mark.parametrize("gap", [0, 1, 2])
def test_recall_knows_what_a_search_of_all_triples_finds(gap):
    graph = random_graph(seed=gap)
    ids = graph.train.T[:, :20]
    assert Recall(graph).known(gap, ids) == known_answers(graph, gap, ids)


def test_a_model_that_only_pytorch_can_score_is_served(tmp_path):
    path = train(random_graph(), out=tmp_path / "x", **TINY | {"model": "TransH"}).path
    run = ServedRun("x", path)
    (found,) = run._answer_all([Asked(2, (0, 1, 0), 4)])
    (expected,) = Run.load(path).predict(head="e0", relation="r1", top=4).queries
    assert found == expected
    run.close()


def test_a_map_is_made_once_and_kept(folders, tmp_path):  # noqa: F811
    path = tmp_path / "copy"
    shutil.copytree(folders / "other", path)
    (path / "map-pca.safetensors").unlink(missing_ok=True)
    run = ServedRun("x", path)
    made = plane.make(run.nearest.vectors, "pca")
    plane.keep(path, made, run.epoch)
    kept = plane.read(path, "pca", run.epoch, len(run.graph.entities))
    np.testing.assert_array_equal(kept.places, made.places)
    assert np.abs(made.places).mean() < 1
    assert plane.read(path, "pca", run.epoch + 1, len(run.graph.entities)) is None
    (path / "map-pca.safetensors").write_bytes(b"no map")
    assert plane.read(path, "pca", run.epoch, len(run.graph.entities)) is None
    (path / "map-pca.safetensors").unlink()
    (path / "map-pca.safetensors").symlink_to(folders / "world" / "model.safetensors")
    assert plane.read(path, "pca", run.epoch, len(run.graph.entities)) is None
    plane.keep(path, made, run.epoch)  # in the place of the link
    assert not (path / "map-pca.safetensors").is_symlink()
    Run.load(path).save(path, overwrite=True)  # a map is a file of a run
    run.close()


def test_pca_is_that_of_the_singular_values():
    vectors = np.random.default_rng(0).normal(size=(50, 6)) * [5, 3, 1, 1, 1, 1]
    centred = vectors - vectors.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(plane.pca(vectors)), np.abs(centred @ axes[:2].T), atol=1e-9)


def test_a_better_map_is_made_where_its_library_is(folders):  # noqa: F811
    pytest.importorskip("sklearn")
    assert "tsne" in plane.methods(100)
    assert plane.methods(10**6) == ["pca"]
    made = plane.make(np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32), "tsne")
    assert made.places.shape == (60, 2)
    assert np.isfinite(made.places).all()


def test_parameters_are_read_strictly():
    number = Parameter("n", "a number", "number", default=3, least=1, most=9)
    assert read_all([number], []) == read_all([number], [("n", "")]) == {"n": 3}
    assert read_all([number], [("n", "9")]) == {"n": 9}
    for wrong in ("0", "10", "1.5", "x", "1e3", "٣" * 400, "-"):
        with pytest.raises(Refusal, match="from 1 to 9"):
            read_all([number], [("n", wrong)])


def test_all_files_of_a_page_are_small():
    assert sum(len(pages.static(name)[0]) for name in pages.STATIC) < 60_000
