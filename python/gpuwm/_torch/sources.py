"""Tensors of torch that are to be published."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, MutableMapping, Sequence, Set
from typing import Any

import torch
from torch import nn

from .._c import dtypes
from .._publish.making import Making, Spec
from .._publish.parts import Gathered, Part, expanded
from . import aliases, described, extents, guards, saved, sharded
from .init import is_plain
from .places import Place, modules_of, places

# The names of torch's dtypes in safetensors.
NAMES = {
    getattr(torch, row.torch): row.name
    for row in dtypes.BY_NAME.values()
    if row.torch is not None and hasattr(torch, row.torch)
}


def add_model(found: Gathered, model: nn.Module, move: bool, private: Set[str]) -> None:
    """Adds parameters and persistent buffers, by the names of state_dict(), and the modules' extra
    states. Only parameters move."""
    modules = modules_of(model)
    chosen = [place for place in places(modules) if place.persistent]
    moves = [move and not p.is_buffer and private.isdisjoint(p.names) for p in chosen]
    devices = {str(p.tensor.device): p.name for p, m in zip(chosen, moves, strict=True) if m}
    mine = {id(place.tensor) for place in places(modules)}
    moving: list[_InModel] = []
    for place, moved in zip(chosen, moves, strict=True):
        if moved and (written := guards.never_shared(place)):
            found.problems.append(written)
            continue
        holder = _InModel(place)
        _add(found, holder, place.names, moved, mine)
        if moved:
            moving.append(holder)
    _add_views(found, model, moving)
    if len(devices) > 1:
        found.problems += [f"{name}: on {device}" for device, name in devices.items()]
        found.problems.append("a version is on one device: move the model to one first")
    saved.compare(found, modules, chosen)


def _add_views(found: Gathered, model: nn.Module, moving: Sequence[_InModel]) -> None:
    """Has views of parameters that move go with them."""
    moved = [aliases.Moved(each.place.name, each.get(), each.get()) for each in moving]
    views = aliases.views_of(model, moved)
    for view in views.views:
        moving[view.moved].views.append(view)
    found.others += views.others
    found.problems += [
        f"{name}: {why}: set it to None before, and make it again afterwards"
        for name, why in views.problems.items()
    ]


def add_item(found: Gathered, items: Mapping[str, Any], name: str, move: bool) -> None:
    """Adds a tensor of a dict. If it moves, the dict gets the new one."""
    if move and not isinstance(items, MutableMapping):
        found.problems.append(f"{name}: its {type(items).__name__} can't be given a shared tensor")
        return
    _add(found, _InDict(items, name), [name], move)


# ---- where a tensor is held: nothing else may keep its memory ----------------------------------


class _InModel:
    """views: tensors that are views of this one."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.views: list[aliases.View] = []

    def get(self) -> torch.Tensor:
        return self.place.tensor

    def put(self, tensor: torch.Tensor) -> None:
        """Gives the parameter, and its views, other memory. They stay the same objects."""
        self.place.tensor.data = tensor
        for view in self.views:
            aliases.give(view.tensor, view.over(tensor))


class _InDict:
    def __init__(self, items: Mapping[str, Any], name: str) -> None:
        self._items: Any = items
        self._name = name

    def get(self) -> torch.Tensor:
        tensor: torch.Tensor = self._items[self._name]
        return tensor

    def put(self, tensor: torch.Tensor) -> None:
        self._items[self._name] = tensor


_Holder = _InModel | _InDict


def _add(
    found: Gathered, holder: _Holder, names: list[str], move: bool, mine: Container[int] = ()
) -> None:
    """mine: ids of the model's parameters and buffers, which may hang on each other."""
    name, tensor = names[0], holder.get()
    problem = _problem(name, tensor, mine)
    if problem:
        found.problems.append(f"{name}: {problem}")
        return
    strides = _dense_strides(tensor)
    spec = _spec(name, found.stored_as(NAMES[tensor.dtype]), tensor, strides)
    spec = spec._replace(tied_to=found.tied_to(_place(name, tensor, strides), name))
    write = functools.partial(_write, holder, spec)
    moving = functools.partial(_move, holder, spec) if move else None
    found.parts.append(Part(spec, str(tensor.device), write, moving))
    root = spec.tied_to or name
    for other in names[1:]:
        found.parts.append(Part(spec._replace(name=other, tied_to=root), str(tensor.device), write))


def _problem(name: str, tensor: torch.Tensor, mine: Container[int]) -> str | None:
    """Why the tensor's bytes and strides don't say everything about it, or can't be read."""
    if is_part := sharded.said(tensor):
        return f"{is_part}: {sharded.REMEDY}"
    kind = tensor.gpuwm_plain if isinstance(tensor, guards.Shared) else type(tensor)
    if not is_plain(tensor):
        return f"a {kind.__name__} of layout {tensor.layout}, not plain data: {_REMEDY}"
    hanging = described.tensors_on(tensor)
    others = sorted(f"{name}.{path}" for path, each in hanging if id(each) not in mine)
    if others:
        return (
            f"a {kind.__name__} that holds more tensors ({', '.join(others)}): {_REMEDY}; or "
            "publish the model with gpuwm.image, which carries what hangs on it"
        )
    if tensor.is_meta:
        return "has no memory: give it its values first"
    if tensor.dtype not in NAMES:
        return f"{tensor.dtype}, which versions don't have"
    if _repeats(tensor):
        return f"repeats its values: {expanded(tensor.numel() * tensor.element_size())}"
    return None


_REMEDY = "publish its parts as plain tensors"


def _repeats(tensor: torch.Tensor) -> bool:
    """Whether the tensor has fewer elements in memory than it says."""
    if tensor.numel() == 0:
        return False
    return extents.span(tensor.size(), tensor.stride()) < tensor.numel()


def _dense_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides, if they are a permutation of dense ones. None: the tensor has, or will be
    written with, the last dimension fastest."""
    if tensor.is_contiguous():
        return None
    dims = sorted(zip(tensor.stride(), tensor.size(), strict=True))
    expected = 1
    for stride, size in dims:
        if size > 1:
            if stride != expected:
                return None
            expected *= size
    return tuple(tensor.stride())


def spec_of(name: str, tensor: torch.Tensor) -> Spec:
    """The spec of a dense tensor."""
    return _spec(name, NAMES[tensor.dtype], tensor, _dense_strides(tensor))


def _spec(name: str, dtype: str, tensor: torch.Tensor, strides: tuple[int, ...] | None) -> Spec:
    shape = tuple(tensor.size())
    if dtype == "F4" and shape:  # one element of torch's has two of these
        return Spec(name, dtype, (*shape[:-1], shape[-1] * 2))
    return Spec(name, dtype, shape, strides)


def _place(name: str, tensor: torch.Tensor, strides: tuple[int, ...] | None) -> tuple[object, ...]:
    """A value that is equal for tensors whose bytes are the same memory and mean the same."""
    if tensor.numel() == 0:
        return (name,)
    place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
    # its gaps are not written, so its strides count
    if strides is None and not tensor.is_contiguous():
        return (*place, tensor.size(), tensor.stride())
    return (*place, tensor.numel())


# ---- bytes -------------------------------------------------------------------------------------


def _write(holder: _Holder, spec: Spec, making: Making, position: int) -> None:
    tensor = holder.get().detach()
    if making.on_host or tensor.is_cuda:
        to, tensor = memory(making, position), _as_it_goes(tensor, spec)
        with torch.no_grad():
            to.copy_(tensor)
        return
    dtype = dtypes.torch_dtype(spec.dtype, spec.name)
    tensor = tensor.resolve_conj().resolve_neg().to(dtype)
    dense = tensor if tensor.is_contiguous() or spec.strides is not None else tensor.contiguous()
    making.write(position, dense.data_ptr(), dense.numel() * dense.element_size())


def _move(holder: _Holder, spec: Spec, making: Making, position: int) -> None:
    made, dtype = memory(making, position), holder.get().dtype
    if spec.dtype not in dtypes.DLPACK_PLAIN:
        empty = torch.empty(0, dtype=dtype, device=made.device)
        made = empty.set_(made.untyped_storage(), 0, made.size(), made.stride())
    holder.put(made)


def memory(making: Making, position: int) -> torch.Tensor:
    """A tensor over the publish's memory. It has bytes if DLPack has no name for the dtype."""
    tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(making.export(position))
    return tensor


def _as_it_goes(tensor: torch.Tensor, spec: Spec) -> torch.Tensor:
    if spec.dtype in dtypes.DLPACK_PLAIN:
        return tensor
    return tensor.view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)[0]
