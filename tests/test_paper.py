"""The paper's tables as data."""

from __future__ import annotations

from nscaching.paper.published import MISPRINTS, TABLES


def test_every_cell_of_link_prediction_is_there():
    table = TABLES["link-prediction"]
    found = table.published
    for data in table.data:
        for model in table.models:
            for row in (("pretrained", ""), ("bernoulli", ""), ("kbgan", "scratch")):
                assert found[data, model, *row].keys() == {"mrr", "mr", "hits@10"}
            for start in ("scratch", "pretrain"):
                assert found[data, model, "nscaching", start].keys() == {"mrr", "mr", "hits@10"}
    assert len(found) == 144
    assert found["fb15k237", "ComplEx", "nscaching", "scratch"] == {
        "mrr": 0.3021, "mr": 221, "hits@10": 48.05
    }  # fmt: skip
    # The paper copies IGAN's from elsewhere, without MRR.
    assert found["wn18", "TransE", "igan", "pretrain"] == {"mr": 240, "hits@10": 91.3}
    assert found["wn18rr", "TransE", "igan", "pretrain"] == {}


def test_every_cell_of_triplet_classification_is_there():
    found = TABLES["triplet-classification"].published
    assert len(found) == 20
    assert found["wn18rr", "TransD", "nscaching", "scratch"] == {"accuracy": 87.64}
    assert found["fb15k237", "ComplEx", "bernoulli", ""] == {"accuracy": 77.64}


def test_the_misprint_is_kept_and_known():
    row = ("wn18", "TransE", "nscaching", "pretrain")
    assert TABLES["link-prediction"].published[row]["hits@10"] == 66.62
    assert "misprint" in MISPRINTS[row, "hits@10"]
    assert (row, "mrr") not in MISPRINTS
