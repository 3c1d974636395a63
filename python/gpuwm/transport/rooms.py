"""Room in a pool for several tensors, which they get all at once: now, or in their turn."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import errors
from . import regions
from .fill import Filling, Fillings, fillings_of, size_of, sizes_of
from .layouts import Layout

if TYPE_CHECKING:
    from concurrent.futures import Future


# ---- now ---------------------------------------------------------------------------------------


def now(region: regions.Region, layouts: Sequence[Layout]) -> Fillings:
    """Raises PoolFull if there is no room for all of them."""
    if len(layouts) == 1:
        return [one_now(region, layouts[0])]
    sizes = sizes_of(region, layouts)
    out = (ctypes.c_void_p * len(sizes))()
    try:
        region.call("gpuwm_chunks_alloc", sizes, len(sizes), 0, out)
    except errors.NotYet as error:
        raise full(error) from None
    return fillings_of(region, out, layouts)


def one_now(region: regions.Region, layout: Layout) -> Filling:
    """The same for one tensor, which most callers have."""
    out = ctypes.c_void_p()
    try:
        region.call("gpuwm_chunk_alloc", size_of(region, layout), 0, ctypes.byref(out))
    except errors.NotYet as error:
        raise full(error) from None
    return Filling(region, out.value or 0, layout)


def full(error: errors.Error) -> errors.PoolFull:
    """The same error by the name for regions that have no room."""
    return errors.PoolFull(error.message, error.detail, code=error.code, name=error.name)


# ---- in their turn -----------------------------------------------------------------------------


def waited(region: regions.Region, layouts: Sequence[Layout], milliseconds: int) -> Fillings:
    """Waits for room. If it is interrupted, it leaves the line."""
    try:
        return now(region, layouts)
    except errors.PoolFull:
        if not milliseconds:
            raise
    from . import turns  # which takes long to import

    future = turns.later(region, layouts, milliseconds, list)
    try:
        while not turns.has_ended(future, regions.UNSEEN_S):
            pass  # a signal that comes just before a wait is noticed after it
        return future.result()
    except BaseException:
        _leave(future)
        raise


async def awaited(region: regions.Region, layouts: Sequence[Layout], milliseconds: int) -> Fillings:
    """Does the same for asyncio."""
    import asyncio

    from . import turns

    try:
        return now(region, layouts)
    except errors.PoolFull:
        if not milliseconds:
            raise
    future = turns.later(region, layouts, milliseconds, list)
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
