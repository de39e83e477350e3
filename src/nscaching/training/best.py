"""The parameters of the best epoch so far: in memory, or in the run folder alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from nscaching.models import Model
    from nscaching.runs.folder import RunFolder


class Best:
    """Keeps the best parameters of a model: in a file of the run folder, if there is a folder.

    Else they are kept in memory, not on a GPU. The parameters of large graphs fill a good part of
    either, and have room for no second copy.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tensors: dict[str, Tensor] = {}  # without a folder
        self.folder: RunFolder | None = None
        self.kept = False

    def keep(self, epoch: int) -> None:
        self.kept = True
        if self.folder is not None:
            self.folder.save_model(self.model.state_dict(), epoch)
            return
        for name, value in self.model.state_dict().items():
            if name not in self.tensors:
                self.tensors[name] = torch.empty_like(value, device="cpu")
            self.tensors[name].copy_(value)

    def take(self) -> None:
        """Write the best parameters over those of the model."""
        folder = self.folder
        self.model.load_state_dict(self.tensors if folder is None else folder.read_model()[0])

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the parameters that a checkpoint holds."""
        self.tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        self.kept = bool(tensors)
