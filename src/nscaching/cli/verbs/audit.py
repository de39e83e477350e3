"""The verbs ``audit``, ``relations`` and ``entities``, which say what data hold."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from nscaching.cli.tables import cells, note, print_table, say
from nscaching.cli.verbs._base import Csv, Json, Memory, Where, one_form, print_plain
from nscaching.cli.verbs.predict import named
from nscaching.errors import UserError, user_path

if TYPE_CHECKING:
    from nscaching.data.graph import KnowledgeGraph

WhereOrRun = Annotated[
    Positional[str],
    arg(metavar="WHERE", help="A known data set, a folder, a file, or a run folder."),
]
Pattern = Annotated[
    Positional[str], arg(metavar="PATTERN", help="Part of a name or label; with * or ?, all of it.")
]


@dataclass(frozen=True)
class Audit:
    """Look for what spoils a training or its figures: leaks, repeats, trivial rules, odd names.

    nscaching audit world
    """

    where: Where
    page: str = ""
    """HTML file to write the audit to, with every relation."""
    overwrite: bool = False
    """Replace the HTML file if it exists."""
    clean: str = ""
    """New folder to write the cleaned data to: train.tsv, valid.tsv and test.tsv."""
    drop_relations: tuple[str, ...] = ()
    """Take away the triples of these relations."""
    drop_blank_nodes: bool = False
    """Take away the triples with a blank node of RDF."""
    drop_leaks: bool = False
    """Take away the valid and test triples that have an inverse or twin in train: another
    benchmark."""
    labels: str = ""
    """File of entity, tab, label lines; empty: entity_labels.tsv beside the data, if any."""
    split_seed: int = 0
    """Seed by which a single file is split 90/5/5."""
    literals: bool = False
    """Use the literals of RDF files as entities; else triples with a literal are left out."""
    memory: Memory = ""
    json: Json = False
    csv: Csv = False

    def run(self) -> None:
        from nscaching.audit import clean, save
        from nscaching.cli.loading import describe_graph, load_graph
        from nscaching.cli.progress import when_slow
        from nscaching.cli.show_audit import audit_rows, show_audit, show_removed

        self._check()
        graph = load_graph(self.where, self.labels, self.split_seed, self.literals, self.memory)
        describe_graph(graph)
        for labelled in graph.labelled.values() if self.clean else ():
            note(f"note: --clean does not write the negatives of {labelled.origin}")
        removed: dict[str, dict[str, int]] = {}
        with when_slow(f"auditing {graph.name}") as bar:
            if self.clean or self.drop_relations or self.drop_blank_nodes or self.drop_leaks:
                cleaned = clean(
                    graph,
                    self.drop_relations,
                    self.drop_blank_nodes,
                    self.drop_leaks,
                    self.split_seed if user_path(self.where).is_file() else None,
                    bar.stage,
                )
                graph, removed = cleaned.graph, cleaned.removed
            found = graph.audit(bar.stage)
        written: dict[str, Any] = {"removed": removed} if removed else {}
        if self.page:
            written["page"] = str(found.write_page(self.page, self.overwrite))
        if self.clean:
            written["clean"] = str(save(graph, self.clean))
        if print_plain(self.json, self.csv, found.to_dict() | written, audit_rows(found)):
            return
        show_audit(found)
        if removed:
            show_removed(removed)
        say(*(f"{what}: {written[what]}" for what in ("page", "clean") if what in written))

    def _check(self) -> None:
        """Refuse what cannot be written before anything is loaded."""
        one_form(self.json, self.csv)
        if self.page:
            from nscaching.audit.page import check_page

            check_page(self.page, self.overwrite)
        if self.clean:
            from nscaching.audit.cleaning import check_new_folder

            check_new_folder(user_path(self.clean))
            if self.page and Path(self.page).resolve().is_relative_to(Path(self.clean).resolve()):
                raise UserError("--page must not lie in the folder of --clean, which is new")


@dataclass(frozen=True)
class Relations:
    """List the relations with their triples, heads, tails, class and inverse.

    nscaching relations world
    """

    where: WhereOrRun
    memory: Memory = ""
    json: Json = False
    csv: Csv = False

    def run(self) -> None:
        from nscaching.audit.listing import list_relations
        from nscaching.cli.loading import load_data_or_run
        from nscaching.cli.progress import when_slow

        one_form(self.json, self.csv)
        graph = load_data_or_run(self.where, self.memory)
        with when_slow(f"comparing the relations of {graph.name}") as bar:
            found = list_relations(graph, bar.stage)
        if print_plain(self.json, self.csv, {"graph": graph.name, "relations": found}, found):
            return
        columns = ("triples", "heads", "tails")
        rows = [
            [
                named(each, graph),
                *cells(each, *columns),
                *(f"{each[mean]:.1f}" for mean in ("tails_per_head", "heads_per_tail")),
                each["class"],
                _inverse(each, graph),
            ]
            for each in found
        ]
        headings = ["relation", *columns, "tails/head", "heads/tail", "class", "inverse"]
        print_table(headings, rows, words=(0, 6, 7))


@dataclass(frozen=True)
class Entities:
    """List the entities that match a pattern, those with most triples first.

    nscaching entities world Port
    """

    where: WhereOrRun
    pattern: Pattern = ""
    top: int = 20
    """How many."""
    memory: Memory = ""
    json: Json = False
    csv: Csv = False

    def run(self) -> None:
        from nscaching.audit.listing import find_entities
        from nscaching.cli.loading import load_data_or_run

        one_form(self.json, self.csv)
        graph = load_data_or_run(self.where, self.memory)
        found = find_entities(graph, self.pattern, self.top)
        if print_plain(self.json, self.csv, {"graph": graph.name, **found}, found["entities"]):
            return
        rows = [[named(each, graph), *cells(each, "triples")] for each in found["entities"]]
        print_table(["entity", "triples"], rows)
        if more := found["matches"] - len(rows):
            say(f"… and {more:,} more; --top {found['matches']} shows all")


def _inverse(relation: dict[str, Any], graph: "KnowledgeGraph") -> str:
    others = [o for o in relation["counterparts"] if o["kind"] == "inverse"]
    itself = ["itself"] if "symmetric" in relation["kinds"] else []
    return ", ".join([*itself, *(named(o | {"name": o["relation"]}, graph) for o in others[:1])])
