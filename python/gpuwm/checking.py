"""What of a model is shared now: by address, whatever was done to it since it was bound."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import nn

from . import remembering
from .places import modules_of, places

if TYPE_CHECKING:
    from .mapping import Mapping


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """Names of the model.

    shared: they lie in the version's memory. private: this process's own, as they are to be:
    private copies, and what the version has not. lost: the version has them, and yet they are
    copies of this process's own: `to(dtype)`, `half()`, `cpu()`, `flatten_parameters()` and
    `param.data = …` make such. unbound: they have no memory.
    """

    shared: tuple[str, ...]
    private: tuple[str, ...]
    lost: tuple[str, ...]
    unbound: tuple[str, ...]


def check(mapping: Mapping, model: nn.Module) -> CheckResult:
    """Lists what is shared, private, or lost its sharing. Reads no tensor."""
    sources = mapping.state_dict()
    found: dict[str, list[str]] = {"shared": [], "private": [], "lost": [], "unbound": []}
    for place in places(modules_of(model)):
        bound = remembering.recall(mapping, place)
        names = [bound.source] if bound else [name for name in place.names if name in sources]
        own = bound.private if bound else place.is_buffer
        if place.tensor.is_meta:
            kind = "unbound"
        elif any(lies_in(place.tensor, sources[name]) for name in names):
            kind = "shared"
        else:
            kind = "private" if own or not names else "lost"
        found[kind] += place.names
    return CheckResult(**{kind: tuple(names) for kind, names in found.items()})


def lies_in(tensor: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether it begins in the other's memory; of empty ones: whether both are."""
    if tensor.device != source.device:
        return False
    begin = source.data_ptr()
    bytes_there = source.untyped_storage().nbytes()
    if bytes_there == 0:
        return tensor.numel() == 0
    return begin <= tensor.data_ptr() < begin + bytes_there
