"""A chunk that its owner fills."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import errors
from .._c import abi_region, lib
from . import frameworks, regions
from .chunks import Chunk
from .layouts import SIZE_MAX, Layout
from .refs import ChunkRef, Mode


def readers_of(readers: Iterable[int] | int, others: int | None) -> abi_region.Readers:
    """readers: slots of processes. others: how many more read; None: one, if no slot is named."""
    return _readers(readers if isinstance(readers, int) else tuple(readers), others)


@functools.lru_cache(64)
def _readers(readers: tuple[int, ...] | int, others: int | None) -> abi_region.Readers:
    slots = (readers,) if isinstance(readers, int) else readers
    named = 0
    for slot in slots:
        named |= 1 << lib.count(slot, "readers", abi_region.SLOTS - 1)
    if others is None:
        others = 0 if named else 1
    others = lib.count(others, "others", abi_region.OTHERS_MAX)
    if not named and not others:
        raise errors.Invalid("a tensor for nobody: others=0", "say who reads it")
    return abi_region.Readers(named, others)


class Filling(Chunk):
    """Room in a pool for a tensor. Write into `tensor`, then `offer` it. If it is collected before,
    the room is given back."""

    def __init__(self, region: regions.Region, pointer: int, layout: Layout) -> None:
        super().__init__(region, pointer, region.library.gpuwm_chunk_discard)
        self.layout = layout

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._there and not self.on_host and not is_finalizing():
            # What is queued on its GPU may still write there.
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                frameworks.of_torch().synchronize(self.region.device)
        super().__del__()

    def __repr__(self) -> str:
        dtype, shape = self.layout.dtype, list(self.layout.shape)
        gone = "" if self._there else ", offered or given back"
        return f"<gpuwm.Filling {dtype} {shape} in the {self.region.label}{gone}>"

    @functools.cached_property
    def tensor(self) -> Any:
        """The tensor of torch, or the array of NumPy if a dtype of NumPy's was asked for. Drop it
        before `offer`: the memory is not this process's to write any more."""
        return self.place(self.layout, self.layout.framework, writable=True)

    def fill(self, source: Any) -> None:
        if self.layout.framework == "numpy":
            frameworks.of_numpy().fill(self.tensor, source)
        else:
            frameworks.of_torch().fill(self.tensor, source, self.layout)

    def offer(
        self,
        readers: Iterable[int] | int = (),
        others: int | None = None,
        *,
        mode: Mode = "pool",
        source: str | None = None,
    ) -> ChunkRef:
        """Hands the tensor to its readers, behind what was queued in the current stream. See
        Pool.put. Raises Busy while the stream is being captured."""
        token = self.hand_over(readers, others)
        device, socket = self.region.device, self.region.client.socket
        return ChunkRef(token, socket, self.layout, (mode, device, source or device))

    def hand_over(self, readers: Iterable[int] | int, others: int | None) -> bytes:
        """Does the same, and returns the token alone."""
        token = abi_region.Token()
        told = ctypes.byref(readers_of(readers, others))
        if self.on_host:
            self.consume("gpuwm_chunk_offer", told, ctypes.byref(token))
        else:
            stream = frameworks.of_torch().stream(self.region.device)
            self.consume("gpuwm_chunk_offer_in_stream", told, stream, ctypes.byref(token))
        self.__dict__.pop("tensor", None)
        return bytes(token)

    def discard(self) -> None:
        """Gives the room back, after what was queued on its GPU."""
        if "tensor" in self.__dict__ and not self.on_host:
            frameworks.of_torch().synchronize(self.region.device)
        self.__dict__.pop("tensor", None)
        self.consume("gpuwm_chunk_discard")

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the room back if it was not offered."""
        if self._there:
            self.discard()


# ---- several ----------------------------------------------------------------------------------


Fillings = list[Filling]


def size_of(region: regions.Region, layout: Layout) -> int:
    found = layout.chunk_bytes
    if found > SIZE_MAX:
        raise errors.NoRoom(
            f"the tensor has {found:,} bytes, and the pool {region.nbytes:,}", "make a larger pool"
        )
    return found


def sizes_of(region: regions.Region, layouts: Sequence[Layout]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(layouts))(*(size_of(region, layout) for layout in layouts))


def fillings_of(region: regions.Region, pointers: Any, layouts: Sequence[Layout]) -> Fillings:
    return [Filling(region, pointers[n], layout) for n, layout in enumerate(layouts)]
