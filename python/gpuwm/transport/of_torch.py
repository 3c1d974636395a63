"""Tensors of torch: their layouts, their places in chunks, and copies."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import nn

from .. import errors
from .._c import devices
from .._client import Client
from .._torch import guards, tensors
from .._torch.tensors import of_storage
from . import layouts
from .layouts import Layout

_PLAIN = (torch.Tensor, nn.Parameter)
_NAMES = {
    getattr(torch, name): name for name in layouts.known("torch") if hasattr(torch, name)
}  # of dtypes


def layout(tensor: torch.Tensor) -> Layout | None:
    """None: the tensor is not plain data: sparse, quantised, nested, without memory, a subclass."""
    if type(tensor) not in _PLAIN and not _is_guarded(tensor):
        return None
    name = _NAMES.get(tensor.dtype)  # quantised tensors have other dtypes
    if name is None or tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
        return None
    shape = tuple(tensor.shape)
    if tensor.is_contiguous():
        return Layout(name, shape, tensor.stride(), "torch")
    # A permutation of a dense tensor keeps its strides; others are written without gaps.
    like = torch.empty_like(tensor, device="meta", memory_format=torch.preserve_format)
    return Layout(name, shape, tuple(like.stride()), "torch")


_gpus: dict[int, str] = {}  # names of gpuwmd's, by number


def device_name(tensor: torch.Tensor, client: Client) -> str:
    """gpuwmd's name of the device that a tensor lies on."""
    if not tensor.is_cuda:
        return devices.HOST
    number = tensor.get_device()
    if number not in _gpus:
        _gpus[number] = devices.resolve(number, client) or devices.HOST
    return _gpus[number]


def place(export: Any) -> torch.Tensor:
    """The tensor in a chunk, of which a DLPack export was made."""
    found: torch.Tensor = torch.utils.dlpack.from_dlpack(export)
    return found


def place_bytes(export: Any, layout: Layout) -> torch.Tensor:
    """The tensor in a chunk, of which the DLPack export has all bytes."""
    return _of_bytes(torch.utils.dlpack.from_dlpack(export), layout)


def fill(there: torch.Tensor, source: torch.Tensor, layout: Layout) -> None:
    """Copies a tensor into its place, on the current stream. Memory of the CPU may be written again
    when the function returns."""
    source = source.detach() if source.requires_grad else source
    is_plain = layout.dtype in layouts.DLPACK_CODES or source.is_conj() or source.is_neg()
    if not is_plain and source.stride() == layout.strides:
        # torch has no kernels for some dtypes.
        there, source = _bytes(there, layout), _bytes(source, layout)
    # A copy between GPUs does not wait: the stream orders it.
    there.copy_(source, non_blocking=source.is_cuda and there.is_cuda)


def room(layout: Layout, target: torch.device) -> torch.Tensor:
    """Memory for a copy: bytes. Raises NoRoom."""
    try:
        return torch.empty(layout.nbytes, dtype=torch.uint8, device=target)
    except RuntimeError as error:
        if target.type != "cpu" and not isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        what = f"{target} has no room for a copy of {layout.nbytes:,} bytes"
        raise errors.NoRoom(what, str(error).partition("\n")[0]) from error


def copied(there: torch.Tensor, layout: Layout, made: torch.Tensor) -> torch.Tensor:
    """A copy in memory that `room` has made, on the current stream. Memory of the CPU is complete
    when the function returns."""
    made.copy_(_bytes(there, layout), non_blocking=there.is_cuda and made.is_cuda)
    return _of_bytes(made, layout)


def device_of(device: Any) -> torch.device:
    """What a caller calls a device, for torch. Raises Invalid and NoDevice."""
    name = devices.named(device) or "cpu"
    if name in ("host", "cpu"):
        return torch.device("cpu")
    try:
        found = (
            torch.device("cuda", devices.ordinal(name)) if _is_uuid(name) else torch.device(name)
        )
    except RuntimeError:  # torch lists all kinds of devices that it knows
        raise _no_device(device) from None
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise _no_device(device)
    count = torch.cuda.device_count()
    if (found.index or 0) >= count:
        raise errors.NoDevice(f"this process has no {name}", f"it sees {count} GPUs")
    return torch.device("cuda", torch.cuda.current_device()) if found.index is None else found


def _no_device(device: Any) -> errors.Invalid:
    return errors.Invalid(f"device={device!r}", '"host", "cpu", a UUID, "cuda:N", N')


def place_of(device: str) -> torch.device:
    """The device with this name of gpuwmd's."""
    return torch.device("cpu") if devices.on_cpu(device) else device_of(device)


def check_dtype(layout: Layout) -> torch.dtype:
    """Raises Unsupported if the installed torch has no such dtype."""
    dtype: torch.dtype | None = getattr(torch, layout.dtype, None)
    if dtype is None:
        raise errors.Unsupported(
            f"torch {torch.__version__} has no dtype {layout.dtype}", "install a newer torch"
        )
    return dtype


def stream(device: str) -> int:
    """The current stream of the GPU with this name of gpuwmd's: a CUstream."""
    number = devices.ordinal(device)
    if _raw_stream is not None:
        found: int = _raw_stream(number)
        return found
    return int(torch.cuda.current_stream(number).cuda_stream)


# What current_stream asks, without making an object of it.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def synchronize(device: str) -> None:
    torch.cuda.synchronize(devices.ordinal(device))


def from_bytes(data: bytes, layout: Layout) -> torch.Tensor:
    """The tensor with these bytes, on the CPU."""
    made = torch.empty(layout.nbytes, dtype=torch.uint8, device="cpu")
    if data:
        made.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return _of_bytes(made, layout)


def to_bytes(tensor: torch.Tensor, layout: Layout) -> bytes:
    """The bytes of a tensor on any device, as the layout has them."""
    made = torch.empty(layout.nbytes, dtype=torch.uint8, device="cpu")
    fill(_of_bytes(made, layout), tensor, layout)
    return ctypes.string_at(made.data_ptr(), layout.nbytes)


def of_buffer(memory: Any) -> torch.Tensor:
    """A tensor of bytes over memory of the CPU, which it keeps."""
    return torch.frombuffer(memory, dtype=torch.uint8)


def of_gpu(memory: Any, device: str) -> torch.Tensor:
    """A tensor over memory of a GPU, which it keeps."""
    return torch.as_tensor(memory, device=device_of(device))


def is_in_version(tensor: torch.Tensor) -> bool:
    """Whether gpuwm._torch.tensors sends it as a reference."""
    return tensors.is_used() and tensors.origin_of(tensor) is not None


def is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter)


def check_leaf(tensor: torch.Tensor) -> None:
    """Raises Invalid if the tensor's gradients would be lost."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise errors.Invalid(
            "a computed tensor that requires gradients can't be sent", "detach() it"
        )


def check_kind(tensor: torch.Tensor) -> None:
    """Raises Unsupported for kinds of tensors that torch passes to another process in vain."""
    if tensor.is_quantized or tensor.is_nested:
        kind = "quantised" if tensor.is_quantized else "nested"
        raise errors.Unsupported(
            f"a {kind} tensor can't be sent", "send the plain tensors that it is made of"
        )


def _is_guarded(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter that lies in a version."""
    return isinstance(tensor, guards.Shared) and tensor.gpuwm_plain in _PLAIN


def _is_uuid(name: str) -> bool:
    return name.startswith(("GPU-", "MIG-"))


def _bytes(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """All bytes of a dense tensor, in the order of the memory."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    first = tensor.storage_offset() * tensor.element_size()
    return empty.set_(tensor.untyped_storage(), first, (layout.nbytes,), (1,))


def _of_bytes(data: torch.Tensor, layout: Layout) -> torch.Tensor:
    dtype = check_dtype(layout)
    return of_storage(data.untyped_storage(), dtype, layout.shape, layout.strides)
