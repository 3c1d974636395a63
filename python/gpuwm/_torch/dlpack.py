"""Tensors of torch that lie in a mapping."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

from .. import errors
from .._c import devices, dtypes, faults, lib
from .._c.handle import Handle, TensorInfo
from .._tensor import capsules
from . import graphs, reductions


def tensors(handle: Handle, positions: Sequence[int], private: bool) -> list[torch.Tensor]:
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
            reductions.mark(storage, where, info.name)
        made.append(found if view is None else of_storage(storage, *view))
    return made


def _exports(handle: Handle, positions: Sequence[int]) -> list[Any]:
    faults.expect(handle)
    count = len(positions)
    managed = (ctypes.c_void_p * count)()
    wanted = (ctypes.c_uint64 * count)(*positions)
    with handle.use() as pointer:
        lib.check(handle.library.gpuwm_dlpack_many(pointer, wanted, count, managed))
    return capsules(managed)


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
