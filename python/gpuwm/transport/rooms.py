"""Room in a pool for several tensors, which they get all at once: now, or in their turn."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from .. import _abi_region, _lib, errors
from . import regions
from .filling import Filling
from .layouts import SIZE_MAX, Layout

T = TypeVar("T")
Fillings = list[Filling]

_SPECIAL: dict[int, type[errors.Error]] = {
    errno.EAGAIN: errors.PoolFull,
    errno.ESHUTDOWN: errors.Ended,
    errno.ECANCELED: errors.Cancelled,
}


# ---- now ---------------------------------------------------------------------------------------


def now(region: regions.Region, layouts: Sequence[Layout]) -> Fillings:
    """Raises PoolFull if there is no room for all of them."""
    if len(layouts) == 1:
        return [one_now(region, layouts[0])]
    sizes = _sizes(region, layouts)
    out = (ctypes.c_void_p * len(sizes))()
    try:
        region.call("gpuwm_chunks_alloc", sizes, len(sizes), 0, out)
    except errors.NotYet as error:
        raise _full(error) from None
    return _fillings(region, out, layouts)


def one_now(region: regions.Region, layout: Layout) -> Filling:
    """The same for one tensor, which most callers have."""
    out = ctypes.c_void_p()
    try:
        region.call("gpuwm_chunk_alloc", _size(region, layout), 0, ctypes.byref(out))
    except errors.NotYet as error:
        raise _full(error) from None
    return Filling(region, out.value or 0, layout)


def _size(region: regions.Region, layout: Layout) -> int:
    found = layout.chunk_bytes
    if found > SIZE_MAX:
        raise errors.NoRoom(
            f"the tensor has {found:,} bytes, and the pool {region.nbytes:,}", "make a larger pool"
        )
    return found


def _sizes(region: regions.Region, layouts: Sequence[Layout]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(layouts))(*(_size(region, layout) for layout in layouts))


def _fillings(region: regions.Region, pointers: Any, layouts: Sequence[Layout]) -> Fillings:
    return [Filling(region, pointers[n], layout) for n, layout in enumerate(layouts)]


def _full(error: errors.Error) -> errors.PoolFull:
    return errors.PoolFull(error.message, error.detail, code=error.code, name=error.name)


# ---- in their turn -----------------------------------------------------------------------------


def waited(region: regions.Region, layouts: Sequence[Layout], milliseconds: int) -> Fillings:
    """Waits for room. If it is interrupted, it leaves the line."""
    try:
        return now(region, layouts)
    except errors.PoolFull:
        if not milliseconds:
            raise
    future = later(region, layouts, milliseconds, list)
    try:
        while not future.done():
            # A signal that comes just before a wait is noticed after it.
            with contextlib.suppress(concurrent.futures.TimeoutError):
                future.exception(regions.UNSEEN_S)
        return future.result()
    except BaseException:
        _leave(future)
        raise


async def awaited(region: regions.Region, layouts: Sequence[Layout], milliseconds: int) -> Fillings:
    """Does the same for asyncio."""
    import asyncio

    try:
        return now(region, layouts)
    except errors.PoolFull:
        if not milliseconds:
            raise
    future = later(region, layouts, milliseconds, list)
    try:
        return await asyncio.wrap_future(future)
    except BaseException:
        _leave(future)
        raise


def _leave(future: Future[Fillings]) -> None:
    """Nobody waits any more. Room that came meanwhile is given back."""
    if future.cancel() or future.exception() is not None:
        return
    for filling in future.result():
        filling.discard()


class _Waiting(Future[T]):
    """Leaves the line when it is cancelled."""

    def __init__(self, region: regions.Region) -> None:
        super().__init__()
        self._region = region
        self.request = ctypes.c_uint64()  # 0: it does not stand in the line yet

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        if self.request.value:
            # NotFound: it is being served, and the room is given back.
            with contextlib.suppress(errors.Error):
                self._region.call("gpuwm_chunks_alloc_cancel", self.request.value)
        return True


_numbers = itertools.count(1)
# By the number that the library hands back.
_waiting: dict[
    int, tuple[_Waiting[Any], regions.Region, Sequence[Layout], Callable[[Fillings], Any]]
] = {}


def later(
    region: regions.Region,
    layouts: Sequence[Layout],
    milliseconds: int,
    made: Callable[[Fillings], T],
) -> Future[T]:
    """made: makes the result of what came."""
    future: _Waiting[T] = _Waiting(region)
    number = next(_numbers)
    sizes = _sizes(region, layouts)
    wish = _abi_region.ChunksWish(sizes, len(sizes), milliseconds)
    _waiting[number] = future, region, layouts, made
    try:
        region.call(
            "gpuwm_chunks_alloc_later",
            ctypes.byref(wish),
            _came_there,
            number,
            ctypes.byref(future.request),
        )
    except BaseException:
        if future.request.value:  # it was interrupted behind the call
            future.cancel()
        else:
            del _waiting[number]
        raise
    return future


def _came(pointers: Any, code: int, number: int) -> None:
    """Called on a thread of the library."""
    error = None if pointers else _lib.last_error(code, _SPECIAL)
    future, region, layouts, made = _waiting.pop(number)
    found = _fillings(region, pointers, layouts) if pointers else []
    if not future.set_running_or_notify_cancel():
        for filling in found:
            filling.discard()
    elif error is None:
        future.set_result(made(found))
    else:
        future.set_exception(error)


_came_there = _abi_region.ChunksFunction(_came)  # the library calls it as long as the process lives
