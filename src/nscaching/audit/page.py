"""The page of an audit: one HTML file that needs nothing else, in the style of the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.audit.entities import HUB
from nscaching.audit.overlaps import LEAST, SAME
from nscaching.audit.relations import KINDS
from nscaching.audit.rules import RULES
from nscaching.audit.splits import FINDINGS
from nscaching.data.graph import SPLITS
from nscaching.errors import flag, user_path
from nscaching.files import check_new_file, write_text
from nscaching.runs.report.markup import templates

if TYPE_CHECKING:
    from nscaching.audit.result import Audit

TEMPLATES = Path(__file__).with_name("templates")
FIRST, MOST = 25, 1000  # relations that are shown, and that are listed
LARGEST = 10  # entities of a kind


def check_page(path: str | Path, overwrite: bool) -> Path:
    target = user_path(path)
    check_new_file(target, flag("page", "path"), overwrite)
    return target


def write_page(audit: Audit, path: str | Path, overwrite: bool = False) -> Path:
    target = check_page(path, overwrite)
    write_text(target, render(audit), shared=True)
    return target


def render(audit: Audit) -> str:
    graph, kinds = audit.graph, audit.entities.kinds
    held_out = next((split for split in ("test", "valid") if len(graph.split(split))), "")
    return templates(TEMPLATES).get_template("audit.html").render(
        graph=graph,
        held_out=held_out,
        splits={split: audit.of_split(split) for split in SPLITS},
        findings=FINDINGS,
        sentences=audit.sentences(),
        rules=audit.rules,
        rule_names=RULES,
        kinds=KINDS,
        hub=HUB,
        least=LEAST,
        same=SAME,
        relation_kinds=audit.relation_kinds(),
        relations=[audit.relations.to_dict(r) for r in audit.by_size()[:MOST]],
        first=FIRST,
        entity_kinds={
            kind: (int(chosen.sum()), audit.entities.largest(chosen, LARGEST))
            for kind, chosen in kinds.items()
        },
    )  # fmt: skip
