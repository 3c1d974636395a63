"""Remembers what `bind` did, for `check`, `switch` and `mapping_of`. It keeps no model alive. A
mapping's handle lives as long as any memory that `bind` shared."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from .._c.handle import Handle
from .._tensors import Tensors
from . import tensors
from .places import Place, modules_of, places


class Seen(NamedTuple):
    """How a tensor lies in a tensor of the version, or in a copy of that. offset: in bytes, from
    the begin."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        begin = int(whole.storage_offset()) * whole.element_size() + self.offset
        at = begin // self.dtype.itemsize
        return tensors.of_storage(whole.untyped_storage(), self.dtype, self.shape, self.strides, at)


class Bound(NamedTuple):
    """A parameter or buffer that was bound.

    - handle: what it was bound to.
    - source: its name in the version. name: its name in the model.
    - begin, nbytes: where the version's tensor is, which no switch changes.
    - seen: how it lies in that tensor. None: it is all of it.
    """

    handle: weakref.ref[Handle]
    source: str
    name: str
    private: bool
    begin: int
    nbytes: int
    seen: Seen | None

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor on the version's device begins in the version's tensor."""
        if self.nbytes == 0:
            return tensor.numel() == 0
        return self.begin <= tensor.data_ptr() < self.begin + self.nbytes


# By the module that has it, and the attribute. Names change when models are wrapped; these don't.
_bound: weakref.WeakKeyDictionary[nn.Module, dict[str, Bound]] = weakref.WeakKeyDictionary()


class Copied(NamedTuple):
    """A tensor that is neither parameter nor buffer, and a private copy. The fields are those of
    `Bound`."""

    handle: weakref.ref[Handle]
    source: str
    name: str
    seen: Seen


_copied: Any = WeakTensorKeyDictionary()  # Copied, by the tensor


class Binding(NamedTuple):
    """What was bound. source: the name of its tensor in the version. The others are fields of
    `Bound`."""

    place: Place
    source: str
    private: bool
    begin: int
    nbytes: int
    seen: Seen | None = None


def handle_of(mapping: Any) -> Handle:
    """The handle is remembered, so that any Mapping of the same attachment will do."""
    handle: Handle = mapping._held() if isinstance(mapping, Tensors) else mapping
    return handle


def remember(mapping: Tensors, bindings: Iterable[Binding]) -> None:
    """Remembers these bindings, in place of earlier ones of the same places."""
    weakly = weakref.ref(handle_of(mapping))
    for place, source, private, begin, nbytes, seen in bindings:
        bound = Bound(weakly, source, place.name, private, begin, nbytes, seen)
        for module, key in place.owners:
            _bound.setdefault(module, {})[key] = bound


def remember_copies(
    mapping: Tensors, copies: Iterable[tuple[torch.Tensor, str, str, Seen]]
) -> None:
    """Remembers private copies that are neither parameters nor buffers: each with its name in the
    version, its name in the model, and how it lies in the version's tensor."""
    weakly = weakref.ref(handle_of(mapping))
    for tensor, source, name, seen in copies:
        _copied[tensor] = Copied(weakly, source, name, seen)


def recall(mapping: Tensors, place: Place) -> Bound | None:
    """How a place was bound to the mapping, or to another one of the same version."""
    mine = handle_of(mapping)
    for bound, handle in _bindings(place):
        same = isinstance(mine, Handle) and mine.where.is_same(handle.where)
        if handle is mine or same:
            return bound
    return None


def _bindings(place: Place) -> Iterator[tuple[Bound, Handle]]:
    """All bindings of a place whose handles live."""
    for module, key in place.owners:
        bound = _bound.get(module, {}).get(key)
        handle = bound.handle() if bound else None
        if bound is not None and handle is not None:
            yield bound, handle


def name_of(tensor: torch.Tensor) -> str | None:
    """The name of a shared parameter or buffer, or of the one in whose memory a tensor begins."""
    nearby = None
    for module, keys in list(_bound.items()):
        for key, bound in keys.items():
            if tensor is module._parameters.get(key) or tensor is module._buffers.get(key):
                return bound.name
            if not bound.private and bound.has(tensor):
                nearby = bound.name
    return nearby


def all_bound(mapping: Tensors) -> Iterator[tuple[Bound, torch.Tensor]]:
    """Everything that was bound to a mapping and lives, each tensor once, as it is now."""
    handle = handle_of(mapping)
    seen: set[int] = set()
    for module, keys in list(_bound.items()):
        for key, bound in keys.items():
            parameter = module._parameters.get(key)
            tensor = module._buffers.get(key) if parameter is None else parameter
            if tensor is not None and bound.handle() is handle and id(tensor) not in seen:
                seen.add(id(tensor))
                yield bound, tensor


def all_copied(mapping: Tensors) -> Iterator[tuple[Copied, torch.Tensor]]:
    """What `remember_copies` was told of a mapping, if it lives and no version has it now."""
    handle = handle_of(mapping)
    for tensor, copied in list(_copied.items()):
        if copied.handle() is handle and tensors.origin_of(tensor) is None:
            yield copied, tensor


# ---- from a model to its handles ---------------------------------------------------------------


def keep(mapping: Tensors, shared: Iterable[torch.Tensor]) -> None:
    """Keeps the handle as long as any of the memory that was bound, so that mapping_of finds it."""
    handle = handle_of(mapping)
    if isinstance(handle, Handle):
        for tensor in shared:
            tensor.untyped_storage().gpuwm_handle = handle  # type: ignore[attr-defined]


def handles_of(model: nn.Module) -> list[Handle]:
    """The handles of all mappings in which something of a model lies, each once."""
    all_places = places(modules_of(model))
    found = {id(handle): handle for place in all_places for handle in _handles(place)}
    return list(found.values())


def _handles(place: Place) -> Iterator[Handle]:
    bindings = [handle for _, handle in _bindings(place)]
    if bindings or place.tensor.is_meta:
        yield from bindings
    elif (origin := tensors.origin_of(place.tensor)) is not None and origin[0].keeps is not None:
        yield origin[0].keeps
