"""What the tests of binding share: a version of plain tensors, models, and versions of them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from gpuwm._mapping import Mapping


class Version:
    """As much of a Mapping as bind needs, over tensors of this process."""

    version = "model@v1"
    private_writes = False
    files: ClassVar[dict[str, bytes]] = {}

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, torch.Tensor]:
        # each in a storage of its own
        made = {id(t): torch.utils.dlpack.from_dlpack(t.detach()) for t in self.tensors.values()}
        return {name: made[id(tensor)] for name, tensor in self.tensors.items()}


def version_of(model: nn.Module, **changed: torch.Tensor | None) -> Any:
    """A version with a model's tensors, copied, tied names once; `changed` by name ("a__b" for
    "a.b"): others, or None for without."""
    copies: dict[int, torch.Tensor] = {}
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone()
        tensors[name] = copies[id(tensor)]
    for name, other in changed.items():
        tensors.pop(name.replace("__", "."), None)
        if other is not None:
            tensors[name.replace("__", ".")] = other
    return Version(tensors)


def arrays(model: nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    """A model's tensors for a checkpoint."""
    return {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}


class Net(nn.Module):
    """Tied, with a batch norm and buffers that are computed."""

    scale: torch.Tensor
    table: torch.Tensor

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, size)
        self.hidden = nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.head = nn.Linear(size, size, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(size) / size)
        self.register_buffer("table", torch.arange(size).cos(), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.hidden(self.embed(ids)))
        logits: torch.Tensor = self.head(hidden * self.scale + self.table)
        return logits


def trained(seed: int = 0) -> Net:
    """A model whose every value is its own."""
    torch.manual_seed(seed)
    model = Net()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
            else:
                tensor.fill_(seed + 3)
    return model.eval()


def addresses(model: nn.Module) -> dict[str, int]:
    state = model.state_dict(keep_vars=True)
    return {name: tensor.data_ptr() for name, tensor in state.items()}


def within(mapping: Mapping, model: nn.Module) -> list[str]:
    """Names of the model's tensors that lie in the mapping's memory."""
    begins = {tensor.data_ptr() for tensor in mapping.state_dict().values()}
    return [name for name, address in addresses(model).items() if address in begins]
