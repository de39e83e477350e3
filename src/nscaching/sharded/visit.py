"""Queries that visit the ranks which own their candidates, by compiled loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.codes import FORMS
from nscaching.kernels.cpu import dealing
from nscaching.kernels.cpu.learner import Array
from nscaching.kernels.cpu.threads import Threads
from nscaching.sharded.meeting import Meeting


@dataclass(frozen=True)
class Visit:
    """Own queries with their candidates on all ranks, and queries of all ranks with those here.

    The plain twin is ``Meeting.scores`` with its gradients. All ranks make a visit together.
    """

    meeting: Meeting
    threads: Threads
    rows: Array  # by which entities of this rank are scored
    # What this rank asks for.
    counts: Array  # [n] candidates of each query
    owner: Array  # [n, C] of each candidate
    owned: Array  # [n, ranks] candidates of each query
    sent: Array  # [ranks, 2] queries and candidates
    # What came to this rank.
    got: Array  # [ranks, 2] queries and candidates
    query: Tensor  # [m, D]
    starts: Array  # [m + 1] of the queries' candidates
    asking: Array  # [p] the query of each candidate
    place: Array  # [p] the row of each candidate

    @classmethod
    @torch.no_grad()
    def begin(
        cls, meeting: Meeting, threads: Threads, rows: Array, query: Tensor, ids: Array,
        counts: Array | None = None,
    ) -> Visit:  # fmt: skip
        """Send queries [n, D] and what they ask for: ids[i, :counts[i]], or all of ids [n, C]."""
        world, shards, (n, size) = meeting.world, meeting.shards, query.shape
        if counts is None:
            counts = np.full(n, ids.shape[1])
        owner, place = np.empty(ids.shape, np.uint8), np.empty(ids.shape, np.int32)
        owned, sent = np.empty((n, world.size), np.int32), np.empty((world.size, 2), np.int64)
        dealing.deal(
            ids, counts, shards.owner_of.numpy(), shards.first_of.numpy(), owner, place, owned, sent
        )
        got = world.counts(torch.from_numpy(sent)).numpy()
        m, p = got.sum(0).tolist()
        lengths, to_me = ((each @ (1 + size, 1)).tolist() for each in (sent, got))
        message = torch.empty(sum(lengths), dtype=torch.int32)
        bits = query.contiguous().view(torch.int32).numpy()
        dealing.pack(owner, place, counts, owned, sent, bits, message.numpy())
        message = world.exchange(message, lengths, to_me, "queries")
        met, asking, places = torch.empty(m, size), np.empty(p, np.int32), np.empty(p, np.int32)
        starts = np.empty(m + 1, np.int64)
        met_bits = met.view(torch.int32).numpy()
        dealing.unpack(message.numpy(), got, starts, asking, places, met_bits)
        return cls(
            meeting, threads, rows, counts, owner, owned, sent, got, met, starts, asking, places
        )

    def scores(self) -> Array:
        """Return the scores [n, C] of the own candidates."""
        found = np.empty(len(self.place), np.float32)
        self._run(dealing.scores, found)
        found = self._exchange(found, self.got, self.sent, 1, "scores")
        values = np.empty(self.owner.shape, np.float32)
        dealing.gather(self.owner, self.counts, self.sent, found, values)
        return values

    def pull(self, slopes: Array, here: Array, active: Array, by_query: Array) -> None:
        """Take slopes [n, C] by the scores to ``by_query`` [n, D], the gradients by own queries.

        Of the candidates of this rank [p], ``here`` gets the slopes, and ``active`` says which
        have a gradient.
        """
        out = np.empty(self.sent[:, 1].sum(), np.float32)
        dealing.spread(self.owner, self.counts, self.sent, slopes, out)
        here[:] = self._exchange(out, self.sent, self.got, 1, "scores, gradients")
        found = np.empty(self.query.shape, np.float32)
        self._run(dealing.pull, here, active, found)
        parts = self._exchange(found, self.got, self.sent, 0, "queries, gradients")
        dealing.add_up(self.owned, self.sent, parts, by_query)

    def _run(self, loop: object, *given: Array) -> None:
        form = FORMS[self.meeting.model.form], self.meeting.model.metric
        asked = *form, self.query, self.rows, self.starts, self.place
        numbers = len(self.place) * self.rows.shape[1]
        self.threads.run(loop, len(self.query), *asked, *given, numbers=numbers)  # type: ignore[arg-type]

    def _exchange(self, rows: Array, sent: Array, got: Array, which: int, kind: str) -> Array:
        sizes = sent[:, which].tolist(), got[:, which].tolist()
        found: Array = self.meeting.world.exchange(torch.from_numpy(rows), *sizes, kind).numpy()
        return found
