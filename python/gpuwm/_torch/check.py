"""What of a model is shared now: by address, whatever was done to the model since it was bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils import _python_dispatch

from .._shown import texts
from . import registry, tensors
from .places import modules_of, places

if TYPE_CHECKING:
    from .._mapping import Mapping
    from .._tensors import Tensors


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """Names of the model.

    - shared: they lie in the version's memory.
    - private: they are this process's own, as they should be: private copies, and names that the
      version lacks.
    - lost: the version has them, but they are copies of this process's own. `to(dtype)`, `half()`,
      `cpu()`, `flatten_parameters()` and `param.data = …` make such copies.
    - unbound: they have no memory.
    """

    shared: tuple[str, ...]
    private: tuple[str, ...]
    lost: tuple[str, ...]
    unbound: tuple[str, ...]

    def __repr__(self) -> str:
        return texts.of_fields(self)


def check(mapping: Mapping, model: nn.Module) -> CheckResult:
    """Lists what is shared, what is private, and what lost its sharing. It reads no tensor.
    `mapping` may be another mapping of the version than the one that the model was bound to."""
    sources = mapping.state_dict()
    found: dict[str, list[str]] = {"shared": [], "private": [], "lost": [], "unbound": []}
    for place in places(modules_of(model)):
        bound = registry.recall(mapping, place)
        names = [bound.source] if bound else [name for name in place.names if name in sources]
        own = bound.private if bound else place.is_buffer
        if place.tensor.is_meta:
            kind = "unbound"
        elif _python_dispatch.is_traceable_wrapper_subclass(place.tensor):
            shared = all(lies_in_version(part, mapping, ()) for part in _parts(place.tensor))
            kind = "shared" if shared else "private"
        elif lies_in_any(place.tensor, sources, names) or lies_in_version(
            place.tensor, mapping, names
        ):
            kind = "shared"
        else:
            kind = "private" if own or not names else "lost"
        found[kind] += place.names
    return CheckResult(**{kind: tuple(names) for kind, names in found.items()})


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors of which a subclass that flattens is made."""
    if not _python_dispatch.is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from _parts(getattr(tensor, name))


def lies_in_any(
    tensor: torch.Tensor, sources: dict[str, torch.Tensor], names: Sequence[str]
) -> bool:
    return any(name in sources and lies_in(tensor, sources[name]) for name in names)


def lies_in_version(tensor: torch.Tensor, mapping: Tensors, names: Sequence[str]) -> bool:
    """Whether the tensor lies where the version, perhaps mapped elsewhere, has one of these names.
    Without names: anywhere in the version."""
    origin = tensors.origin_of(tensor)
    handle = registry.handle_of(mapping)
    if origin is None or not handle.where.is_same(origin[0]):
        return False
    table = handle.table()
    there = [table.place(name) for name in names if name in table.positions]
    return not names or table.place(origin[1]) in there


def lies_in(tensor: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether the tensor begins in the other's memory. If one is empty: whether both are."""
    if tensor.device != source.device:
        return False
    begin = source.data_ptr()
    bytes_there = source.untyped_storage().nbytes()
    if bytes_there == 0:
        return tensor.numel() == 0
    return begin <= tensor.data_ptr() < begin + bytes_there
