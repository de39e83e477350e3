"""The negative cache in PyKEEN: ``import nscaching.pykeen``, then ``negative_sampler="nscaching"``.

PyKEEN's negative samplers see a batch of triples and neither the model nor the step. PyKEEN's
training loop has both, and resolvers are PyKEEN's way to add classes. So this module registers two
classes: a sampler, and a training loop that hands its model to the sampler. The training loop is
PyKEEN's sLCWA loop otherwise, and becomes the default of the resolver, so that naming the sampler
is enough. A batch is sampled just before its gradient step: drawing and refreshing there is
Algorithm 2 of the paper.
"""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pykeen.models import ERModel
from pykeen.models import Model as PykeenModel
from pykeen.nn import modules as interactions
from pykeen.sampling import NegativeSampler, negative_sampler_resolver
from pykeen.training import SLCWATrainingLoop, training_loop_resolver
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from nscaching.data.index import Side
from nscaching.errors import UserError
from nscaching.models import Form, Model
from nscaching.samplers.cache import NegativeCache

PREFIX = "nscaching."
"""Of the names of the cache's tensors among those of the model in a checkpoint of PyKEEN's."""

# Candidates that a model without a compiled form scores at once.
PIECE = 1 << 14


class NSCachingNegativeSampler(NegativeSampler):
    """Draws negatives from a cache of high-scoring ones and refreshes the cache with every batch.

    The keyword arguments are those of ``NegativeCache`` (n1, n2, seed, draw, refresh, temperature,
    candidates, side, …) and those of PyKEEN's ``NegativeSampler``.
    """

    hpo_default: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **NegativeSampler.hpo_default,
        "n1": {"type": int, "low": 10, "high": 90, "q": 20},
        "n2": {"type": int, "low": 10, "high": 90, "q": 20},
    }

    def __init__(self, *, mapped_triples: Tensor, **options: Any) -> None:  # noqa: ANN401
        theirs = options.keys() & inspect.signature(NegativeSampler).parameters
        given = {name: options.pop(name) for name in theirs}
        super().__init__(mapped_triples=mapped_triples, **given)
        self.triples, self.settings = mapped_triples, options
        self.cache: NegativeCache | None = None

    def bind(self, model: PykeenModel) -> NegativeCache:
        """Make the cache, on the device of the model whose scores will refresh it."""
        sizes = self.num_entities, self.num_relations
        self.score = scores_of(model)
        self.cache = NegativeCache(self.triples, *sizes, device=model.device, **self.settings)
        return self.cache

    def corrupt_batch(self, positive_batch: Tensor) -> Tensor:
        """Return the negatives [B, k, 3] of a batch [B, 3], and refresh the rows of the batch."""
        if self.cache is None:
            raise UserError(
                'negative_sampler="nscaching" needs the model: leave out training_loop, or give '
                'training_loop="nscaching"'
            )
        if get_worker_info() is not None:
            raise UserError(
                'negative_sampler="nscaching" follows the model step by step: give num_workers=0'
            )
        (h, r, t), k = positive_batch.reshape(-1, 3).T, self.num_negs_per_pos
        with self.score:
            # A row that another query left behind is first made the query's own.
            if first := bool(self.cache.shared) and self.cache.settings.refresh_side == "both":
                self.cache.refresh(h, r, t, self.score)
            negatives = self.cache.sample(h, r, t, k, self.score)
            if not first:
                self.cache.refresh(h, r, t, self.score)
        relation = r.to(negatives.head.device).unsqueeze(1).expand_as(negatives.head)
        drawn = torch.stack([negatives.head, relation, negatives.tail], dim=2)
        return drawn.to(positive_batch.device).view(*positive_batch.shape[:-1], k, 3)


class NSCachingTrainingLoop(SLCWATrainingLoop):
    """PyKEEN's sLCWA loop; a sampler with a cache gets the model, and checkpoints the cache."""

    _sampler: NSCachingNegativeSampler | None = None
    _cache_state: Mapping[str, Tensor] | None = None  # of a checkpoint, until there is a cache

    def _create_training_data_loader(self, *args: Any, **kwargs: Any) -> DataLoader[Any]:  # noqa: ANN401
        loader = super()._create_training_data_loader(*args, **kwargs)
        sampler = getattr(loader.dataset, "negative_sampler", None)
        if isinstance(sampler, NSCachingNegativeSampler):
            held, cache = self._sampler, sampler.bind(self.model)
            if self._cache_state is None and self._epoch and held is not None and held.cache:
                self._cache_state = held.cache.state_dict()  # continue_training
            if self._cache_state is not None:
                cache.load_state_dict(self._cache_state)
            self._sampler, self._cache_state = sampler, None
        return loader

    def _save_state(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  (PyKEEN's)
        """Save a checkpoint: the cache goes with the tensors of the model."""
        cache = None if self._sampler is None else self._sampler.cache
        held = {} if cache is None else cache.state_dict()

        def add(model: PykeenModel, state: dict[str, Tensor], *rest: object) -> None:
            state.update({f"{PREFIX}{name}": tensor.cpu() for name, tensor in held.items()})

        with self.model.register_state_dict_post_hook(add):  # type: ignore[no-untyped-call]
            super()._save_state(*args, **kwargs)

    def _load_state(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (PyKEEN's)
        """Load a checkpoint: the tensors of the cache wait for the cache."""

        def take(model: PykeenModel, state: dict[str, Tensor], *rest: object) -> None:
            names = [name for name in state if name.startswith(PREFIX)]
            self._cache_state = {n.removeprefix(PREFIX): state.pop(n) for n in names} or None

        with self.model.register_load_state_dict_pre_hook(take):  # type: ignore[no-untyped-call]
            return super()._load_state(*args, **kwargs)


class _Scores(Model):
    """A model of PyKEEN's in evaluation mode, scored by its own functions."""

    pykeen: Any  # the model; its types are PyKEEN's
    broadcasts = True  # scores come from the model, not from a table of rows

    def __init__(self, model: PykeenModel, norm: int = 2) -> None:
        super().__init__(model.num_entities, model.num_relations, 0, norm)
        self.__dict__["pykeen"] = model  # not a submodule: its mode is changed by hand

    def __enter__(self) -> None:
        # Dropout and batch normalization are for the gradient step alone.
        self.mode = self.pykeen.training
        self.pykeen.eval()

    def __exit__(self, *error: object) -> None:
        self.pykeen.train(self.mode)
        for module in self.pykeen.modules():
            # RGCN keeps the embeddings of a forward pass: these have no gradient.
            if getattr(module, "enriched_embeddings", None) is not None:
                module.enriched_embeddings = None

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        triples = torch.stack(torch.broadcast_tensors(head, relation, tail), dim=-1)
        scores: Tensor = self.pykeen.score_hrt(triples.reshape(-1, 3))
        return scores.view(triples.shape[:-1])

    def _piece_size(self, candidates: Tensor) -> int:
        return max(1, PIECE // candidates.shape[1])

    def _score_piece(
        self, side: Side, anchor: Tensor, relation: Tensor, candidates: Tensor, table: Tensor | None
    ) -> Tensor:
        if not isinstance(self.pykeen, ERModel):
            return self._score_broadcast(side, anchor, relation, candidates)
        if side is Side.TAIL:
            return self.pykeen.score_t(torch.stack([anchor, relation], dim=1), tails=candidates)
        return self.pykeen.score_h(torch.stack([relation, anchor], dim=1), heads=candidates)


class _Dot(_Scores):
    """DistMult and ComplEx: q·e."""

    form = Form.DOT

    def table(self, dtype: torch.dtype | None = None) -> Tensor:
        rows = _real(self.pykeen.entity_representations[0](None).detach())
        return rows if dtype is None else rows.to(dtype).to(rows.dtype)

    def query(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        rows = self.pykeen.entity_representations[0](anchor)
        relations = self.pykeen.relation_representations[0](relation)
        return _real(self.meet(side, rows, relations)).detach()

    def meet(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Return h∘r for the tail, conj(r)∘t for the head."""
        return anchor * (relation.conj() if side is Side.HEAD else relation)


class _Rotated(_Dot):
    """RotatE: the Euclidean distance to h∘r, or to conj(r)∘t."""

    form = Form.DISTANCE


class _Translated(_Rotated):
    """TransE: the distance to h + r, or to t − r."""

    def meet(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        return anchor - relation if side is Side.HEAD else anchor + relation


def _real(rows: Tensor) -> Tensor:
    """Return complex rows [n, d] as real ones [n, 2d]; a dot product or a length needs no more."""
    return torch.view_as_real(rows.resolve_conj()).flatten(-2) if rows.is_complex() else rows


COMPILED: dict[type, type[_Scores]] = {
    interactions.ComplExInteraction: _Dot,
    interactions.DistMultInteraction: _Dot,
    interactions.RotatEInteraction: _Rotated,
    interactions.TransEInteraction: _Translated,
}
"""Interactions whose refresh is compiled; others are refreshed through the model's own scores."""


def scores_of(model: PykeenModel) -> _Scores:
    if not isinstance(model, ERModel) or len(model.entity_representations) != 1:
        return _Scores(model)
    interaction: Any = model.interaction
    kind = COMPILED.get(type(interaction), _Scores)
    if kind is _Rotated:  # whose head query needs relations that only turn
        with torch.no_grad():
            turns = model.relation_representations[0](None).abs()
        kind = _Rotated if torch.allclose(turns, torch.ones_like(turns), atol=1e-3) else _Scores
    if kind is not _Translated:
        return kind(model)
    plain = interaction.power_norm or interaction.p not in (1, 2)
    return _Scores(model) if plain else _Translated(model, int(interaction.p))


negative_sampler_resolver.register(NSCachingNegativeSampler)
training_loop_resolver.register(NSCachingTrainingLoop)
training_loop_resolver.default = NSCachingTrainingLoop
