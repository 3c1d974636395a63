"""What `bind` did, for `check` and `switch`: it keeps neither models nor mappings alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from .places import Place

if TYPE_CHECKING:
    from .mapping import Mapping


class Bound(NamedTuple):
    """A parameter or buffer that was bound. source: its name in the version; name: in the model;
    begin, nbytes: where the version's tensor is, which no switch changes."""

    mapping: weakref.ref[Mapping]
    source: str
    name: str
    private: bool
    begin: int
    nbytes: int

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor of the version's device begins in the version's."""
        if self.nbytes == 0:
            return tensor.numel() == 0
        return self.begin <= tensor.data_ptr() < self.begin + self.nbytes


# By the module that has it, and as what: names change as models are wrapped, these don't.
_bound: weakref.WeakKeyDictionary[nn.Module, dict[str, Bound]] = weakref.WeakKeyDictionary()


# The name of its tensor in the version, whether it is a private copy, and where the version's
# tensor begins and how long it is.
Binding = tuple[Place, str, bool, int, int]


def remember(mapping: Mapping, bindings: Iterable[Binding]) -> None:
    """Instead of what was remembered of the places before."""
    weakly = weakref.ref(mapping)
    for place, source, private, begin, nbytes in bindings:
        bound = Bound(weakly, source, place.name, private, begin, nbytes)
        for module, key in place.owners:
            _bound.setdefault(module, {})[key] = bound


def recall(mapping: Mapping, place: Place) -> Bound | None:
    for module, key in place.owners:
        bound = _bound.get(module, {}).get(key)
        if bound is not None and bound.mapping() is mapping:
            return bound
    return None


def name_of(tensor: torch.Tensor) -> str | None:
    """The name of a shared parameter or buffer, or of one in whose memory a tensor begins."""
    nearby = None
    for module, keys in list(_bound.items()):
        for key, bound in keys.items():
            if tensor is module._parameters.get(key) or tensor is module._buffers.get(key):
                return bound.name
            if not bound.private and bound.has(tensor):
                nearby = bound.name
    return nearby


def all_bound(mapping: Mapping) -> Iterator[tuple[Bound, torch.Tensor]]:
    """Whatever was bound to a mapping and lives, each tensor once, as it is now."""
    seen: set[int] = set()
    for module, keys in list(_bound.items()):
        for key, bound in keys.items():
            parameter = module._parameters.get(key)
            tensor = module._buffers.get(key) if parameter is None else parameter
            if tensor is not None and bound.mapping() is mapping and id(tensor) not in seen:
                seen.add(id(tensor))
                yield bound, tensor
