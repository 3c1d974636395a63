"""Tensors that hang on a parameter: what its attributes hold. Scales and code books are such: they
say what the parameter's bytes mean."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import extents
from .check import lies_in_version
from .init import has_attributes
from .places import Place

if TYPE_CHECKING:
    from .._tensors import Tensors

REMEDIES = {
    "parts": "parts: strict=False, and make of them what belongs on the parameter",
    "described": (
        "described: take it off (parameter.attribute = None), bind, and make it anew of the "
        "version's tensors; or keep its tensors as buffers of the module"
    ),
}


def tensors_on(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that attributes of the tensor are, or that objects there hold. Each comes with the
    path from the tensor. Arrays of NumPy count as tensors. Functions, methods and partials are not
    looked into: they load the tensor."""
    from ..image import arrays, kinds, slots  # they import modules that import this one

    opaque = kinds.Opaque()
    seen: dict[int, Any] = {}
    left = [(slot.key, slot.value) for slot in slots.slots(tensor)]
    while left:
        path, each = left.pop()
        if isinstance(each, torch.Tensor):
            yield path, each
        elif isinstance(each, nn.Module):
            if id(each) not in seen:
                seen[id(each)] = each
                inside = (*each.named_parameters(), *each.named_buffers())
                yield from ((f"{path}.{name}", inner) for name, inner in inside)
        elif arrays.is_array(type(each)) and not arrays.problem(each):
            yield path, torch.from_numpy(each.copy())
        elif kinds.owner_kind(each, opaque) in kinds.PARTED and id(each) not in seen:
            seen[id(each)] = each
            found = slots.slots(each)
            left += [(slots.step(path, slot.kind, slot.key), slot.value) for slot in found]


def describes_others(
    place: Place, source: torch.Tensor, sources: Mapping[str, torch.Tensor], bound: Container[int]
) -> str | None:
    """Why the place can't get the values of `source`: tensors that hang on it describe other bytes
    than the version's. They don't if the bytes are equal, and if the tensors that the version has
    below the place's name hang on it, too.

    sources: the version's tensors, by the model's names. bound: ids of tensors that bind gives the
    version's values, so that it does not matter what hangs on them."""
    tensor = place.tensor
    if not has_attributes(tensor):
        return None
    hanging = [(path, each) for path, each in tensors_on(tensor) if id(each) not in bound]
    if not hanging:
        return None
    below = tuple(f"{name}." for name in place.names)
    parts = [part for name, part in sources.items() if name.startswith(below)]
    if _same_bytes(tensor, source) and all(
        any(_same_bytes(part, each) for _, each in hanging) for part in parts
    ):
        return None
    paths = ", ".join(f"{place.name}.{path}" for path, _ in hanging)
    return f"described: {place.name} holds {paths}, made for other bytes than the version's"


def left_behind(tensor: torch.Tensor, mapping: Tensors, moving: Container[int]) -> list[str]:
    """Paths from a tensor to those on it that a switch of the mapping would leave as they are: they
    do not lie in its memory. moving: ids of tensors that get the new version's values."""
    if not has_attributes(tensor):
        return []
    return sorted(
        path
        for path, each in tensors_on(tensor)
        if each.numel() and id(each) not in moving and not lies_in_version(each, mapping, ())
    )


def whole_of(name: str, names: Container[str]) -> str | None:
    """The parameter below whose name this name is, if there is one. names: of parameters and
    buffers."""
    while name:
        name = name.rpartition(".")[0]
        if name in names:
            return name
    return None


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype and the same elements in the same order."""
    if one.is_meta or other.is_meta or one.dtype != other.dtype or one.nbytes != other.nbytes:
        return False
    # without the cpu() of a class of theirs
    plain = (torch.Tensor._make_subclass(torch.Tensor, each, False) for each in (one, other))
    return torch.equal(*(extents.bytes_of(each.cpu()) for each in plain))
