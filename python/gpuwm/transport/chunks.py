"""Chunks of a pool that this process holds: to fill them, or to read them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from .. import errors
from .._c import abi_region, devices, dtypes
from .._c.dlpack import capsule
from . import frameworks, layouts, regions
from .layouts import Framework, Layout

_BYTE = dtypes.BY_NAME["U8"].code


class Chunk:
    """Owns a `struct gpuwm_chunk`. If it is collected before it was consumed, `give_back` consumes
    it."""

    def __init__(
        self, region: regions.Region, pointer: int, give_back: Callable[[int], object]
    ) -> None:
        self.region = region
        self._there = [pointer]  # empty when it was consumed
        self._give_back = give_back

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._there and not is_finalizing():
            self._give_back(self._there.pop())

    @property
    def on_host(self) -> bool:
        return devices.on_cpu(self.region.device)

    def _pointer(self) -> int:
        try:
            return self._there[-1]
        except IndexError:
            raise errors.Closed("the chunk was offered, discarded or finished already") from None

    def call(self, name: str, *arguments: Any) -> int:
        return regions.check(
            getattr(self.region.library, name)(self._pointer(), *arguments), self.region.kind
        )

    def consume(self, name: str, *arguments: Any) -> None:
        """Calls a function that consumes the chunk. If the function fails, the chunk stays."""
        pointer = self._pointer()
        self._there.clear()
        try:
            regions.check(getattr(self.region.library, name)(pointer, *arguments), self.region.kind)
        except BaseException:
            self._there.append(pointer)
            raise

    # ---- its memory ----

    def export_bytes(self, nbytes: int) -> Any:
        """A DLPack capsule of its first bytes."""
        return self._export(_BYTE, (nbytes,), (1,))

    def _export(self, code: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        out = ctypes.c_void_p()
        ndim = len(shape)
        sizes, steps = (ctypes.c_uint64 * ndim)(*shape), (ctypes.c_int64 * ndim)(*strides)
        view = abi_region.ChunkView(0, code, ndim, sizes, steps)
        self.call("gpuwm_chunk_dlpack", ctypes.byref(view), ctypes.byref(out))
        return capsule(out.value or 0)

    def _memory(self, nbytes: int) -> memoryview:
        """Its first bytes, in memory of the CPU."""
        address: int = self.region.library.gpuwm_chunk_address(self._pointer())
        array = (ctypes.c_ubyte * nbytes).from_address(address)
        array.export = self.export_bytes(nbytes)  # type: ignore[attr-defined]
        return memoryview(array).cast("B")

    def place(self, layout: Layout, framework: Framework, writable: bool = False) -> Any:
        """The tensor or array in the chunk. It keeps a chunk that is read, and the region open."""
        if framework == "torch":
            code = layouts.DLPACK_CODES.get(layout.dtype)
            if code is None:
                export = self.export_bytes(layout.chunk_bytes)
                return frameworks.of_torch().place_bytes(export, layout)
            return frameworks.of_torch().place(self._export(code, layout.shape, layout.strides))
        if not self.on_host:
            raise errors.Unsupported(
                f"the chunk lies on {self.region.device}, where NumPy can't read", "use torch"
            )
        memory = self._memory(layout.chunk_bytes)
        return frameworks.of_numpy().place(memory if writable else memory.toreadonly(), layout)
