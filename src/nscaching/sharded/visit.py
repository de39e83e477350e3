"""Queries that visit the ranks which own their candidates, by compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.codes import FORMS
from nscaching.kernels.cpu import dealing
from nscaching.kernels.cpu.learner import Array
from nscaching.kernels.cpu.threads import Threads
from nscaching.sharded.meeting import Meeting


class Visit:
    """Own queries [n, D] ask for ids[i, :counts[i]], or for all of ids [n, C], int32."""

    def __init__(self, query: Tensor, ids: Array, counts: Array | None = None) -> None:
        self.query, self.ids = query.contiguous(), ids
        self.counts = np.full(len(ids), ids.shape[1]) if counts is None else counts

    def deal(self, owner_of: Array, first_of: Array, ranks: int, sent: Array) -> None:
        """Count how many queries and candidates each rank gets: sent [ranks, 2]."""
        self.owner = np.empty(self.ids.shape, np.uint8)  # of each candidate
        self.place = np.empty(self.ids.shape, np.int32)
        self.owned = np.empty((len(self.ids), ranks), np.int32)  # candidates of each query
        dealt = self.owner, self.place, self.owned, sent
        dealing.deal(self.ids, self.counts, owner_of, first_of, *dealt)


class Met:
    """Queries [m, D] of all ranks that have candidates here, in rows place[starts[q]:starts[q+1]].

    ``asking`` has the query of each candidate. The queries of this rank come first.
    """

    def __init__(self, queries: int, places: int, size: int) -> None:
        self.query = np.empty((queries, size), np.float32)
        self.starts = np.zeros(queries + 1, np.int64)
        self.asking, self.place = np.empty((2, places), np.int32)

    def part(self, queries: Sequence[slice], places: Sequence[slice]) -> Met:
        """Return some of the queries, and their places."""
        part = Met(0, 0, self.query.shape[1])
        part.query = np.concatenate([self.query[some] for some in queries])
        part.place = np.concatenate([self.place[some] for some in places])
        sizes = np.concatenate([np.diff(self.starts[s.start : s.stop + 1]) for s in queries])
        part.starts = np.concatenate([part.starts, sizes.cumsum()])
        part.asking = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        return part


class Trip:
    """Visits that share their messages; all ranks make a trip together.

    The plain twin is ``Meeting.scores`` with its gradients. In messages this rank stands before
    the others: its own part stays here, and is worked on while the rest travels.
    """

    def __init__(
        self, meeting: Meeting, threads: Threads, rows: Array, visits: Sequence[Visit]
    ) -> None:
        """Send queries to the ranks whose entities they ask for; ``rows`` are those of this one."""
        self.world, self.threads, self.rows, self.visits = meeting.world, threads, rows, visits
        self.form = FORMS[meeting.model.form], meeting.model.metric
        rank, ranks, kinds = self.world.rank, self.world.size, len(visits)
        order = [rank, *(other for other in range(ranks) if other != rank)]
        owner_of = np.argsort(order)[meeting.shards.owner_of.numpy()]
        self.sent = np.empty((ranks, kinds, 2), np.int64)  # queries and candidates
        for kind, each in enumerate(visits):
            first_of = meeting.shards.first_of.numpy()
            each.deal(owner_of, first_of, ranks, self.sent[:, kind])
        told = np.empty_like(self.sent)
        told[order] = self.sent
        self.got = self.world.counts(torch.from_numpy(told)).numpy()[order]
        size = rows.shape[1]
        lengths = self.sent @ (1 + size, 1)
        self.own = [int(lengths[0].sum()), *self.got[0].sum(0).tolist()]  # numbers, queries, places
        self.message, starts = np.empty(lengths.sum(), np.int32), _starts(lengths)
        for kind, each in enumerate(visits):
            where = each.owner, each.place, each.counts, each.owned, self.sent[:, kind]
            bits = each.query.view(torch.int32).numpy()
            dealing.pack(*where, bits, starts[:, kind], self.message)
        to_me = (self.got @ (1 + size, 1)).sum(1).tolist()
        self.arrive = self._exchange(self.message, lengths.sum(1).tolist(), to_me, "queries")
        queries, places = self.got.sum((0, 1)).tolist()
        self.met = Met(queries, places, size)

    def scores(self) -> list[Array]:
        """Return the scores [n, C] of the candidates of each visit."""
        kinds, (numbers, queries, _), met = len(self.visits), self.own, self.met
        found, got = np.empty(len(met.place), np.float32), self.got.reshape(-1, 2)
        arrays = met.starts, met.asking, met.place, met.query.view(np.int32)
        dealing.unpack(self.message[:numbers], got[:kinds], 0, *arrays)
        self._run(dealing.scores, met, slice(0, queries), found)
        dealing.unpack(self.arrive()[numbers:], got[kinds:], queries, *arrays)
        self._run(dealing.scores, met, slice(queries, len(met.query)), found)
        places = [part[:, :, 1].sum(1).tolist() for part in (self.got, self.sent)]
        back, values = self._exchange(found, places[0], places[1], "scores")(), []
        starts = _starts(self.sent[:, :, 1])
        for kind, each in enumerate(self.visits):
            values.append(np.empty(each.ids.shape, np.float32))
            dealing.gather(each.owner, each.counts, starts[:, kind], back, values[-1])
        return values

    def met_in(self, kind: int) -> Met:
        """Return what came here in one kind of visits."""
        if len(self.visits) == 1:
            return self.met
        starts = (_starts(self.got[:, :, which])[:, kind].tolist() for which in (0, 1))
        sizes = self.got[:, kind].T.tolist()
        parts = [
            [slice(a, a + n) for a, n in zip(*each, strict=True)]
            for each in zip(starts, sizes, strict=True)
        ]
        return self.met.part(*parts)

    def pull(
        self, kind: int, met: Met, slopes: Array, active: Array, by_query: Array
    ) -> tuple[Array, Callable[[], None]]:
        """Take slopes [n, C] by the scores of a visit to the gradients by its queries.

        Returns the slopes [p] of the candidates that are ``met`` here, of which ``active`` [p] says
        whether they have a gradient, and what waits until ``by_query`` [n, D] is whole.
        """
        each = self.visits[kind]
        (queries_to, places_to), (queries_of, places_of) = (
            part[:, kind].T.tolist() for part in (self.sent, self.got)
        )
        by_queries, by_places = _starts(self.sent[:, kind, 0]), _starts(self.sent[:, kind, 1])
        out = np.empty(sum(places_to), np.float32)
        dealing.spread(each.owner, each.counts, by_places, slopes, out)
        arrive = self._exchange(out, places_to, places_of, "scores, gradients")
        found, own = np.empty(met.query.shape, np.float32), queries_of[0]
        self._run(dealing.pull, met, slice(0, own), out, active, found)
        here = arrive()
        self._run(dealing.pull, met, slice(own, len(found)), here, active, found)
        arrive = self._exchange(found, queries_of, queries_to, "queries, gradients")
        return here, lambda: dealing.add_up(each.owned, by_queries, arrive(), by_query)

    def _run(self, loop: Callable[..., Any], met: Met, some: slice, *given: Array) -> None:
        """Run a loop over some of the queries; ``given`` are by places, or by queries [m, D]."""
        starts = met.starts[some.start : some.stop + 1]
        given = tuple(part[some] if part.ndim == 2 else part for part in given)
        asked = *self.form, met.query[some], self.rows, starts, met.place
        numbers = int(starts[-1] - starts[0]) * self.rows.shape[1]
        self.threads.run(loop, len(starts) - 1, *asked, *given, numbers=numbers)

    def _exchange(
        self, rows: Array, sent: list[int], got: list[int], kind: str
    ) -> Callable[[], Array]:
        """Send rows to the other ranks; return what waits for theirs, behind the rows that stay."""
        if self.world.size == 1:
            return lambda: rows
        found = np.empty((sum(got[1:]) + sent[0], *rows.shape[1:]), rows.dtype)
        found[: sent[0]] = rows[: sent[0]]
        parts = torch.from_numpy(rows[sent[0] :]), torch.from_numpy(found[sent[0] :])
        rank = self.world.rank
        sizes = [[*each[1 : rank + 1], 0, *each[rank + 1 :]] for each in (sent, got)]
        wait = self.world.begin(*parts, sizes[0], sizes[1], kind)

        def arrive() -> Array:
            wait()
            return found

        return arrive


def _starts(sizes: Array) -> Array:
    """Return where parts of some sizes [ranks, …] start, rank by rank, one after the other."""
    ends = sizes.cumsum().reshape(sizes.shape)
    starts: Array = ends - sizes
    return starts
