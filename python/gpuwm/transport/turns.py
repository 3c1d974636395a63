"""Requests for room that wait in their turn."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from .. import errors
from .._c import abi_region
from . import regions
from .fill import Fillings, fillings_of, sizes_of
from .layouts import Layout

T = TypeVar("T")

_SPECIAL: dict[int, type[errors.Error]] = {
    errno.EAGAIN: errors.PoolFull,
    errno.ESHUTDOWN: errors.Ended,
    errno.ECANCELED: errors.Cancelled,
}


def has_ended(future: Future[Any], seconds: float) -> bool:
    """Waits for it for a while."""
    return bool(wait((future,), seconds).done)


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
    sizes = sizes_of(region, layouts)
    wish = abi_region.ChunksWish(sizes, len(sizes), milliseconds)
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
    error = None if pointers else regions.error_of(code, abi_region.POOL, _SPECIAL)
    future, region, layouts, made = _waiting.pop(number)
    found = fillings_of(region, pointers, layouts) if pointers else []
    if not future.set_running_or_notify_cancel():
        for filling in found:
            filling.discard()
    elif error is None:
        future.set_result(made(found))
    else:
        future.set_exception(error)


_came_there = abi_region.ChunksFunction(_came)  # the library calls it as long as the process lives
