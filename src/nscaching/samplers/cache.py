"""The negative cache of NSCaching (Zhang et al., 2019), for any PyTorch training loop."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import torch
from torch import Tensor

from nscaching.data.index import AnswerIndex, Side, answer_index
from nscaching.errors import UserError
from nscaching.kernels import Batch, CacheAccess, CacheSide, Kernels, Negatives, choose_kernels
from nscaching.models import Model
from nscaching.samplers.arguments import LongArray, Triples, as_ids, as_triples, check_settings
from nscaching.samplers.batch_rows import BatchRows
from nscaching.samplers.draws import Draws, Progress, SideRule
from nscaching.samplers.keys import Keys
from nscaching.samplers.places import NewRows
from nscaching.samplers.score_function import Score, ScoreFunction
from nscaching.samplers.shared_rows import SharedRows, rows_of_budget
from nscaching.samplers.start import fill
from nscaching.settings import CacheSettings, Strategy


class NegativeCache:
    """Keeps N1 high-scoring negatives for every query (h, r, ?) and (?, r, t) of training.

    cache = NegativeCache(triples, num_entities, num_relations, n1=50, n2=50, seed=0)
    for h, r, t in loader:
        negatives = cache.sample(h, r, t)   # .entity and .head, .tail [B, k]; .replace_head [B]
        cache.refresh(h, r, t, score)       # score(h, r, t) broadcasts, higher is better
        ...                                 # loss and gradient step

    ``sample`` draws negatives from the rows of a batch (Algorithm 2, steps 5 to 7). ``refresh``
    scores the cached entities and N2 random ones, and keeps N1 of them (Algorithm 3), once per
    query however many triples of the batch share the query. A refresh in some epochs only is the
    paper's lazy update. Within a budget of ``memory`` a refresh comes before the sample: rows that
    queries share are made the query's own first.
    """

    def __init__(
        self,
        triples: Triples,
        num_entities: int,
        num_relations: int,
        n1: int = 50,
        n2: int = 50,
        *,
        seed: int = 0,
        draw: Strategy = "uniform",
        refresh: Strategy = "importance",
        temperature: float = 1.0,
        candidates: Literal["set", "slots"] = "set",
        shared_candidates: bool = False,
        candidate_rows: Literal["float32", "bfloat16"] = "float32",
        side: SideRule = "bernoulli",
        refresh_side: Literal["both", "drawn"] = "both",
        filter_known: bool = False,
        strata: int = 0,
        memory: str | None = None,
        new_rows: NewRows | None = None,
        device: torch.device | str | None = None,
        kernels: Kernels | str = "auto",
        index: Mapping[Side, AnswerIndex] | None = None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        """Fill the cache of the training triples [n, 3], columns (head, relation, tail).

        - ``draw``: how a negative is drawn from a row; "importance" and "top" need scores.
        - ``refresh``: which candidates survive; ``temperature`` divides their scores.
        - ``candidates``: a "set" holds each entity once, "slots" may repeat an entity.
        - ``shared_candidates``: all queries of a batch share the fresh candidates.
        - ``candidate_rows``: precision of the entity rows in compiled refreshes.
        - ``side``: head or tail by tph / (tph + hpt) of the relation, or by a fair coin.
        - ``refresh_side``: both rows of a triple, or the row of the last ``sample`` only.
        - ``filter_known``: no training triple becomes a negative.
        - ``strata``: shards of the entities, of which a refresh of a query visits one; 0: none.
        - ``memory``: a budget such as "8GiB" or "25%", within which queries share rows.
        - ``new_rows``: makes the rows elsewhere than on the device, as ``samplers/places.py`` does.
        - ``device``: where the cache lives; by default, where ``triples`` are.
        - ``index``: the answer index of the triples, where it exists already.
        """
        settings = CacheSettings(
            n1, n2, draw, refresh, temperature, refresh_side=refresh_side, candidates=candidates,
            shared_candidates=shared_candidates, candidate_rows=candidate_rows, strata=strata,
        )  # fmt: skip
        check_settings(settings, num_entities, side)
        if device is None:
            device = triples.device if isinstance(triples, Tensor) else "cpu"
        self.device = torch.device(device)
        self.kernels = choose_kernels(kernels, self.device) if isinstance(kernels, str) else kernels
        if index is None:
            index = answer_index(as_triples(triples, num_entities, num_relations), num_relations)
        self.entities, self.settings = num_entities, settings
        self.keys = Keys(index, num_relations, self.device)
        self.draws = Draws(
            index, num_entities, num_relations, side=side, filter_known=filter_known,
            device=self.device, seed=seed, kernels=self.kernels,
        )  # fmt: skip
        self.shared: Mapping[Side, SharedRows] = {}  # where queries share rows
        if memory is not None:
            self.shared = rows_of_budget(memory, index, n1, num_entities, self.device)
        self.rows: dict[Side, Tensor] = {}
        """The cached entities, int32 [rows, N1] for each side: a row for each query, or fewer."""
        self.sides: dict[Side, CacheSide] = {}  # where each query has a row on the device
        self._at_hand: BatchRows | None = None  # else: copies of the rows of the last batch
        for asked in Side:
            count = len(self.shared[asked]) if self.shared else self.keys.count(asked)
            if new_rows is not None:
                self.rows[asked] = new_rows(count, n1)
                continue
            self.rows[asked] = torch.empty(count, n1, dtype=torch.int32, device=self.device)
            if not self.shared:
                self.sides[asked] = CacheSide(asked, self.rows[asked], *self.keys.queries(asked))
        self._drawn: tuple[Batch, Negatives] | None = None  # the last draw
        start = self._access([], None)
        fill(self.rows, self.draws, start, bool(self.shared), progress)

    # One step.

    def sample(
        self,
        head: LongArray,
        relation: LongArray,
        tail: LongArray,
        k: int = 1,
        score: Score | Model | None = None,
    ) -> Negatives:
        """Draw k negatives for each training triple [B], all of one side.

        ``entity`` [B, k] of the result replaces the head where ``replace_head`` [B], else the tail;
        ``head`` and ``tail`` [B, k] are the whole false triples. ``score`` is needed where
        ``draw`` is "importance" or "top".
        """
        batch = self.batch(head, relation, tail)
        if not 1 <= k <= self.settings.n1:
            raise UserError(f"k = {k} is not in 1 … n1 = {self.settings.n1}, the size of a row")
        if score is None and self.settings.draw != "uniform":
            raise UserError(f"draw = {self.settings.draw!r} needs scores: give score= to sample")
        self.draws.tick += 1
        return self.draw(batch, None if score is None else self._model(score), k)

    def refresh(
        self, head: LongArray, relation: LongArray, tail: LongArray, score: Score | Model
    ) -> None:
        """Refresh the rows of a batch of training triples [B] by the scores of now.

        ``score`` is a function of ids whose shapes broadcast, or a model of this package, whose
        rows go through compiled kernels.
        """
        batch = self.batch(head, relation, tail)
        if self.settings.refresh_side == "drawn":
            last = self._drawn[0] if self._drawn else None
            if last is None or not all(torch.equal(batch.key(s), last.key(s)) for s in Side):
                raise UserError("refresh_side = 'drawn' needs a sample of the same batch before")
        if not callable(score):
            raise UserError(f"score must be a function or a model, not {score!r}")
        self.update(batch, self._model(score))

    def batch(self, head: LongArray, relation: LongArray, tail: LongArray) -> Batch:
        """Return training triples [B] with the keys of their two queries."""
        h, r, t = (as_ids(ids, self.device) for ids in (head, relation, tail))
        if not len(h) == len(r) == len(t):
            raise UserError(f"{len(h)} heads, {len(r)} relations and {len(t)} tails are no triples")
        return Batch(h, r, t, self.keys.of(Side.HEAD, t, r), self.keys.of(Side.TAIL, h, r))

    def draw(self, batch: Batch, model: Model | None, count: int = 1) -> Negatives:
        """Draw negatives for triples whose keys are known; ``tick`` is the number of the step."""
        draws, access = self.draws, self.access(batch, model)
        given = dict(zip(("head_key", "tail_key"), access.keys, strict=True))
        there = dataclasses.replace(batch, **given)  # with the places of its rows as keys
        if self.settings.draw == "uniform" and not draws.filter_known:
            drawn = draws.draw(there, [cache.ids for cache in access.sides], count)
        else:
            replace_head = draws.choose_head(batch)
            drawn = self.kernels.draw_by_score(there, replace_head, access, count)
            if draws.filter_known and self.shared:
                # Other queries of a row may have cached what completes the query at hand.
                drawn = draws.without_known(batch, drawn)
        self._drawn = batch, drawn
        return drawn

    def access(self, batch: Batch, model: Model | None) -> CacheAccess:
        """Return the rows of triples whose keys are known, for a kernel."""
        if self.sides:
            return self._access([batch.key(side) for side in Side], model)
        if self._at_hand is None or not self._at_hand.are_of(batch):
            self._at_hand = BatchRows(batch, self.rows, self.shared, self.kernels)
        return self._at_hand.access(self._access([], model), self._at_hand.copy)

    def update(self, batch: Batch, model: Model, drawn: Tensor | None = None) -> None:
        """Refresh the rows of triples whose keys are known.

        ``drawn`` [B] says which heads are replaced, if they are not those of the last draw.
        """
        mine: Sequence[Tensor | None] = [None, None]
        if self.settings.refresh_side == "drawn":
            if drawn is None:
                assert self._drawn is not None
                drawn = self._drawn[1].replace_head
            assert drawn is not None
            mine = [drawn, ~drawn]
        if self.sides:
            keys = [batch.key(side) for side in Side]
            keys = [k if m is None else k.where(m, -1) for k, m in zip(keys, mine, strict=True)]
            self.kernels.refresh(self._access(keys, model))
            return
        copies = self._at_hand
        if copies is None or not copies.are_of(batch) or mine[0] is not None:
            copies = BatchRows(batch, self.rows, self.shared, self.kernels, mine)
        if self.shared:
            copies.deal(self.draws.seed, self.draws.tick, self.entities)
        self.kernels.refresh(copies.access(self._access([], model), copies.refreshed))
        copies.put_back()
        self._at_hand = copies if self.shared else None

    def settle(self, refreshed: bool = False) -> None:
        """Forget the copies of rows; put them where they belong if a kernel has refreshed them."""
        if self._at_hand is not None and refreshed:
            self._at_hand.put_back()
        self._at_hand = None

    # What the cache holds.

    def wait(self) -> None:
        """Wait until a GPU has written rows in host memory, which this process may read then."""
        if self.device.type == "cuda" and not all(ids.is_cuda for ids in self.rows.values()):
            torch.cuda.synchronize(self.device)

    def entries(
        self, head: int | None = None, relation: int | None = None, tail: int | None = None
    ) -> Tensor:
        """Return the cached entities [N1] of (head, relation, ?) or (?, relation, tail).

        Other queries may share them, within a budget.
        """
        if relation is None or (head is None) == (tail is None):
            raise UserError("entries takes relation and one of head and tail")
        side, anchor = (Side.TAIL, head) if head is not None else (Side.HEAD, tail)
        query = torch.tensor([[anchor], [relation]], device=self.device)
        row = self.keys.of(side, *query)
        if self.shared:
            row = self.shared[side].find(*query)
        self.wait()
        return self.rows[side][row[0].to(self.rows[side].device)].long().to(self.device)

    @property
    def queries(self) -> int:
        """The number of queries of both sides."""
        return sum(map(self.keys.count, Side))

    @property
    def reached(self) -> bool:
        """Whether kernels of the device reach the rows, which may be in host memory."""
        there = self.device.type
        return all(ids.device.type == there or ids.is_pinned() for ids in self.rows.values())

    @property
    def nbytes(self) -> int:
        """Memory of the cache in bytes: the cached entities and the queries that they belong to."""
        held = [t for c in self.sides.values() for t in (c.anchor, c.relation)]
        held += self.rows.values()
        shared = sum(rows.nbytes for rows in self.shared.values())
        return sum(tensor.nbytes for tensor in held) + shared + self.keys.nbytes

    def __repr__(self) -> str:
        heads, tails = (f"{self.keys.count(side):,}" for side in Side)
        return (
            f"NegativeCache({heads} queries for heads, {tails} for tails, n1={self.settings.n1}, "
            f"n2={self.settings.n2}, {self.nbytes / 2**20:.1f} MiB on {self.device})"
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return the cached entities and the state of the random numbers, as tensors."""
        self.wait()
        rows = {f"{side.value}_cache": ids for side, ids in self.rows.items()}
        own = {"queries": self.keys.digest(), "seed": torch.tensor(self.draws.seed)}
        return {**rows, **own, **self.draws.checkpoint()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the state of a cache of the same training triples and the same N1."""
        if missing := sorted(self.state_dict().keys() - state.keys()):
            raise UserError(f"the state of a cache lacks {', '.join(missing)}")
        if not torch.equal(state["queries"].cpu(), self.keys.digest()):
            raise UserError("the state belongs to a cache of other training triples")
        kept = {side: state[f"{side.value}_cache"] for side in Side}
        for side, ids in self.rows.items():
            if kept[side].shape[1:] == ids.shape[1:] and len(kept[side]) != len(ids):
                rows = f"{len(kept[side]):,} rows for {side.value}s, not {len(ids):,}"
                raise UserError(f"the state holds {rows}: give memory= as before")
            if kept[side].shape != ids.shape:
                raise UserError(f"the state holds n1 = {kept[side].shape[1]}, not {ids.shape[1]}")
            if kept[side].min() < 0 or kept[side].max() >= self.entities:
                raise UserError(f"the state holds entities outside of 0 … {self.entities - 1}")
        self.wait()
        for side, ids in self.rows.items():
            ids.copy_(kept[side])
        self._at_hand = None
        self.draws.seed = int(state["seed"])
        self.draws.restore(dict(state))

    def _access(self, keys: list[Tensor], model: Model | None) -> CacheAccess:
        draws = self.draws
        known = draws.is_known if draws.filter_known else None
        asked = cast(Model, model), self.settings  # a uniform draw asks no model
        return CacheAccess([*self.sides.values()], keys, *asked, draws.seed, draws.tick, known)

    def _model(self, score: Score | Model) -> Model:
        return score if isinstance(score, Model) else ScoreFunction(score, self.entities)
