"""Tensors of torch that lie in a version: made in place, and sent to other processes by
multiprocessing as references.

torch's own way copies host memory, and moves the sender's storage there. On a GPU it exports memory
that the sender must keep until all receivers have taken it. Tensors that lie in no version go
torch's way. Only multiprocessing's pickler sends references: pickle, torch.save and deepcopy get
the bytes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # it registers its own reducers, which gpuwm's replace
from torch import nn

from .. import errors
from .._c import devices, dlpack, dtypes, faults, lib
from .._c.handle import Handle, TensorInfo, Where
from .._received import Origin, View, handle_of, received
from . import counters, graphs

# ---- in place ----------------------------------------------------------------------------------


def in_place(handle: Handle, positions: Sequence[int], private: bool) -> list[torch.Tensor]:
    """Tensors in place, each in a storage of its own that has the tensor's size. private: writes go
    to copies of this process's own. Raises Unsupported if this torch has no such dtype, or can't
    reach the device."""
    table, where = handle.table(), handle.where
    if not devices.on_cpu(handle.device) and not _has_gpus():
        raise errors.Unsupported(
            f"tensor {table.infos[positions[0]].name} lies on {handle.device}, "
            f"and torch {torch.__version__} has no CUDA here",
            "install a torch with CUDA",
        )
    infos = [table.infos[position] for position in positions]
    views = [None if info.dtype in dtypes.DLPACK_PLAIN else _view(info) for info in infos]
    made: list[torch.Tensor] = []
    for info, view, export in zip(infos, views, _exports(handle, positions), strict=True):
        found = torch.utils.dlpack.from_dlpack(export)
        storage = found.untyped_storage()
        if not private:
            mark(storage, where, info.name)
        made.append(found if view is None else of_storage(storage, *view))
    counters.follow(handle, made)
    return made


def _exports(handle: Handle, positions: Sequence[int]) -> list[Any]:
    faults.expect(handle)
    count = len(positions)
    managed = (ctypes.c_void_p * count)()
    wanted = (ctypes.c_uint64 * count)(*positions)
    with handle.use() as pointer:
        lib.check(handle.library.gpuwm_dlpack_many(pointer, wanted, count, managed))
    return dlpack.capsules(managed)


def clone(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor's bytes, with its strides. For some dtypes torch's clone() has no
    kernel."""
    storage = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
    offset = int(tensor.storage_offset())
    return of_storage(storage, tensor.dtype, tensor.size(), tensor.stride(), offset)


_View = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


def _view(info: TensorInfo) -> _View:
    """The dtype, shape and strides of a torch tensor whose DLPack export has bytes."""
    shape, strides = info.shape, info.strides
    if info.dtype == "F4":
        shape, strides = _pairs(info)
    return dtypes.torch_dtype(info.dtype, info.name), shape, strides


def _pairs(info: TensorInfo) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of an F4 tensor: one element of torch's has two of these."""
    if not info.shape or info.shape[-1] % 2 or not info.is_contiguous():
        raise errors.Unsupported(
            f"tensor {info.name} is F4 {list(info.shape)}, and torch packs the last dimension "
            "in pairs",
            "memoryview() or tobytes() has its bytes",
        )
    shape = (*info.shape[:-1], info.shape[-1] // 2)
    return shape, (*(stride // 2 for stride in info.strides[:-1]), 1)


def of_storage(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
) -> torch.Tensor:
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, offset, shape, strides)


@functools.cache
def _has_gpus() -> bool:
    """Whether torch sees GPUs. It is asked once, since torch looks for devices each time."""
    found: bool = torch.cuda.is_available()
    if found:
        graphs.watch()
    return found


# ---- marks -------------------------------------------------------------------------------------

# of a storage: the version, and the name of the tensor that fills the storage
Marked = tuple[Where, str]


_Reducer = Callable[[Any], tuple[Any, ...]]
_torchs: dict[type, _Reducer] = {}


def mark(storage: Any, where: Where, name: str) -> None:
    """From now on every view of the storage is sent as a reference."""
    _install()
    storage.gpuwm_origin = (where, name)


@functools.cache
def _install() -> None:
    reducers: dict[type, _Reducer] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind, reduce in (
        (torch.Tensor, _reduce_tensor),
        (nn.Parameter, _reduce_tensor),
        (torch.UntypedStorage, _reduce_storage),
    ):
        _torchs[kind] = reducers[kind]
        ForkingPickler.register(kind, reduce)


def is_used() -> bool:
    """Whether this process has marked anything."""
    return bool(_torchs)


def origin_of(tensor: torch.Tensor) -> Marked | None:
    """The version that a tensor lies in, and the name of the version's tensor there."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a subclass without a storage
        return None
    return getattr(storage, "gpuwm_origin", None)


def name_of(tensor: torch.Tensor) -> str | None:
    """The name of the version's tensor that it lies in."""
    origin = origin_of(tensor)
    return origin[1] if origin else None


def sent(marked: Marked, tensor: torch.Tensor | None) -> Origin:
    """What is sent instead of a tensor, or of its whole storage."""
    where, name = marked
    view = None
    if tensor is not None:
        view = View(
            str(tensor.dtype).removeprefix("torch."),
            int(tensor.storage_offset()),
            tuple(map(int, tensor.size())),
            tuple(map(int, tensor.stride())),
            tensor.is_conj(),
            tensor.is_neg(),
        )
    return Origin(where.socket, where.id, where.label, where.device, where.rank, name, view)


# ---- sending -----------------------------------------------------------------------------------


def _reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """The reducer for multiprocessing's pickler."""
    origin = origin_of(tensor)
    if origin is None:
        return _torchs[type(tensor)](tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("a computed tensor that requires gradients can't be sent: detach() it")
    return _receive, (sent(origin, tensor), type(tensor), tensor.requires_grad)


def _reduce_storage(storage: Any) -> tuple[Any, ...]:
    origin = getattr(storage, "gpuwm_origin", None)
    if origin is None:
        return _torchs[torch.UntypedStorage](storage)
    return _receive_storage, (sent(origin, None),)


# ---- receiving ---------------------------------------------------------------------------------


def rebuilt(origin: Origin) -> torch.Tensor:
    """The tensor in place, and marked: it can be sent on, and keeps the version attached."""
    where = received(origin)  # held until the tensor is marked: others share its lease until then
    handle = handle_of(where)
    position = handle.table().positions[origin.name]
    whole = in_place(handle, [position], False)[0]
    mark(whole.untyped_storage(), where, origin.name)
    view = origin.view
    if view is None:
        return whole
    empty = torch.empty(0, dtype=getattr(torch, view.dtype), device=whole.device)
    found = empty.set_(whole.untyped_storage(), view.offset, view.shape, view.strides)
    return seen_as(found, view.conj, view.neg)


def seen_as(tensor: torch.Tensor, conj: bool, neg: bool) -> torch.Tensor:
    """A view whose values are conjugated, or negated, when they are read."""
    found = tensor.conj() if conj else tensor
    return torch._neg_view(found) if neg else found


def _receive(origin: Origin, kind: type[torch.Tensor], requires_grad: bool) -> torch.Tensor:
    found = rebuilt(origin)
    if kind is torch.Tensor:
        return found.requires_grad_(requires_grad)
    made: torch.Tensor = torch.Tensor._make_subclass(kind, found, requires_grad)
    return made


def _receive_storage(origin: Origin) -> torch.UntypedStorage:
    return rebuilt(origin).untyped_storage()
