"""The memory of a region: as a tensor of torch, as an array of NumPy, as a memoryview. Each of them
keeps the region open."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

from .. import errors
from .._c import devices, lib
from . import frameworks
from .regions import Keeper, Region

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray
    from torch import Tensor


class OnGpu:
    """Bytes of a GPU, as torch takes them over: it keeps this object with the tensor."""

    def __init__(self, address: int, keeper: Keeper, shape: tuple[int, ...]) -> None:
        self._keeper = keeper
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": shape,
            "typestr": "|u1",
            "data": (address, not keeper.region.writes),
            "strides": None,
            "stream": None,
            "version": 3,
        }


def tensor_of(region: Region, shape: tuple[int, ...]) -> Tensor:
    """A tensor of bytes over the first bytes of the memory. torch does not know memory that may
    only be read: a write into it ends the process, or its CUDA context."""
    of_torch = frameworks.of_torch()
    made: Tensor
    if devices.on_cpu(region.device):
        made = of_torch.of_buffer(_array(region, *_extent(shape))).view(shape)
    else:
        address, keeper = region.memory()
        made = of_torch.of_gpu(OnGpu(address, keeper, shape), region.device)
    return made


def array_of(region: Region, shape: tuple[int, ...]) -> NDArray[uint8]:
    """An array of bytes, on host. It says whether it may be written."""
    array: NDArray[uint8] = frameworks.of_numpy().bytes_in(view_of(region, *_extent(shape)))
    return array.reshape(shape)


def view_of(region: Region, first: int, count: int) -> memoryview:
    """So many bytes, on host. It says whether they may be written."""
    view = memoryview(_array(region, first, count)).cast("B")
    return view if region.writes else view.toreadonly()


def _extent(shape: tuple[int, ...]) -> tuple[int, int]:
    count = 1
    for size in shape:
        count *= size
    return 0, count


def _array(region: Region, first: int, count: int) -> Any:
    if not devices.on_cpu(region.device):
        raise errors.Unsupported(
            f"the {region.label} lies on {region.device}, where the CPU can't read", "use .tensor()"
        )
    address, keeper = region.memory()
    array = (ctypes.c_ubyte * count).from_address(address + first)
    array.keeper = keeper  # type: ignore[attr-defined]
    return array


# ---- its GPU -----------------------------------------------------------------------------------


def stream_of(stream: Any) -> int:
    """The handle of a stream that a caller gives: of torch, or a CUstream as a number."""
    found = getattr(stream, "cuda_stream", stream)
    if not isinstance(found, int) or isinstance(found, bool):
        raise lib.wrong("stream", stream, "a torch.cuda.Stream, a CUstream's number, or None")
    return found


def current_stream(region: Region) -> int | None:
    """torch's current stream of the region's GPU. None: torch does not use the memory here."""
    if not _is_torchs(region):
        return None
    found: int = frameworks.of_torch().stream(region.device)
    return found


def settle(region: Region) -> None:
    """Waits until the GPUs that use the region's memory are idle, as far as torch has used them."""
    if not _is_torchs(region):
        return
    for device in (region.device, *region.reached):
        frameworks.of_torch().synchronize(device)


def _is_torchs(region: Region) -> bool:
    """Whether torch may use the memory. A process that only looks has none of it mapped."""
    return not (devices.on_cpu(region.device) or region.looks) and _torch_is_there()


def _torch_is_there() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
