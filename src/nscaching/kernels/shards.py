"""Which rank owns an entity, and where its row is."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nscaching.errors import UserError, counted

BLOCKS = 64  # the most ranks, too


@dataclass(frozen=True)
class Shards:
    """Entities in blocks: entity e is in block e mod V, and a rank owns a range of blocks.

    Ids near each other are often of like degree: so every rank has its share of the frequent ones.
    The order of rows, block by block, is the same with any number of ranks.
    """

    entities: int
    ranks: int
    rank: int

    def __post_init__(self) -> None:
        if self.ranks > self.blocks:
            most = f"{self.blocks} at most" if self.entities >= BLOCKS else "at most one for each"
            few = f"{counted(self.entities, 'entity', 'entities')}"
            raise UserError(f"{self.ranks} processes are too many for {few}: {most}")

    @property
    def blocks(self) -> int:
        return min(BLOCKS, self.entities)

    def first_block(self, rank: int) -> int:
        return rank * self.blocks // self.ranks

    def block_start(self, block: int) -> int:
        """Return the position of a block's first row among all rows."""
        return block * (self.entities // self.blocks) + min(block, self.entities % self.blocks)

    def start(self, rank: int) -> int:
        return self.block_start(self.first_block(rank))

    def __len__(self) -> int:
        """Return the number of rows of this rank."""
        return self.start(self.rank + 1) - self.start(self.rank)

    @property
    def own_blocks(self) -> range:
        return range(self.first_block(self.rank), self.first_block(self.rank + 1))

    def own_rows(self, block: int) -> slice:
        """Return where the rows of one of the own blocks are."""
        first = self.start(self.rank)
        return slice(self.block_start(block) - first, self.block_start(block + 1) - first)

    def owner(self, entity: Tensor) -> Tensor:
        return self.owner_of.to(entity.device)[entity % self.blocks]

    def mine(self, entity: Tensor) -> Tensor:
        return self.owner(entity) == self.rank

    def place(self, entity: Tensor) -> Tensor:
        """Return the rows of entities within their owners' tables."""
        return self.first_of.to(entity.device)[entity % self.blocks] + entity // self.blocks

    def entity_at(self, position: Tensor) -> Tensor:
        """Return the entities whose rows are at some positions among all rows."""
        whole, rest = divmod(self.entities, self.blocks)
        longer = rest * (whole + 1)  # positions of blocks that have one row more
        behind = rest + (position - longer) // whole
        block = torch.where(position < longer, position // (whole + 1), behind)
        within = position - block * whole - block.clamp(max=rest)
        return within * self.blocks + block

    @cached_property
    def owner_of(self) -> Tensor:
        """The ranks that own the blocks."""
        return ((torch.arange(self.blocks) + 1) * self.ranks - 1) // self.blocks

    @cached_property
    def first_of(self) -> Tensor:
        """The row of the first entity of each block within its owner's table."""
        owners = enumerate(self.owner_of.tolist())
        return torch.tensor([self.block_start(b) - self.start(owner) for b, owner in owners])

    def own_entities(self, device: torch.device | str = "cpu") -> Tensor:
        """Return the entities of this rank, in the order of the rows."""
        every = (
            torch.arange(b, self.entities, self.blocks, device=device) for b in self.own_blocks
        )
        return torch.cat(list(every))
