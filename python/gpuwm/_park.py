"""Gives the memory of a mapping back for a while. Its addresses stay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import errors
from ._c import lib, threads
from ._shown import logs

if TYPE_CHECKING:
    from ._tensors import Tensors

# Ctrl-C is noticed between two questions, and nothing goes on behind the caller's back after it.
QUESTION_MS = round(threads.UNSEEN_S * 1000)


def park(mapping: Tensors) -> None:
    """Takes the memory of the version out of this process, and keeps its addresses: models that
    were bound, tensors, arrays and captured CUDA graphs are true again after `unpark`. Until then
    nobody may read them: on host a read ends the process with SIGSEGV, in a kernel with an illegal
    address. gpuwmd may let the version leave its device meanwhile, for as long as something else
    needs the room, but does not free it. A mapping that is parked already is fine.

    Call it at a quiet point: it waits until the device is idle. Private copies stay. If another
    mapping of this process has the same version, the memory goes when the last one has parked.

    Raises Busy (a CUDA stream is being captured), Invalid (the version does not move: it has no
    name, or is cached), Unsupported (`writes="private"`, transport="cuda_ipc", or gpuwmd is older)
    or Lost; the mapping is as before then.
    """
    handle = mapping._held()
    with handle.use() as pointer:
        lib.check(handle.library.gpuwm_park(pointer))
    logs.park.info("parked %s", mapping.version)


def unpark(mapping: Tensors, wait: float | None = None) -> None:
    """Maps the memory again, at the same addresses. A mapping that is not parked is fine.

    - wait: seconds to wait if the version has left its device, and has to come back. None: do not
      wait; the way back has begun all the same. Ctrl-C ends the wait.

    Raises TimedOut, NotFound (the version was retired after it had left its device), Damaged,
    NoDevice, NoRoom, Quota or Lost; the mapping stays parked then.
    """
    handle = mapping._held()
    left = lib.milliseconds(wait, "wait")
    began = time.monotonic()
    while True:
        now = min(left, QUESTION_MS) if left >= 0 else QUESTION_MS
        try:
            with handle.use() as pointer:
                lib.check(handle.library.gpuwm_unpark(pointer, now))
        except errors.TimedOut:
            if left >= 0 and (time.monotonic() - began) * 1000 >= left:
                raise
        else:
            break
    logs.park.info("unparked %s after %.3f s", mapping.version, time.monotonic() - began)


def is_parked(mapping: Tensors) -> bool:
    handle = mapping._held()
    with handle.use() as pointer:
        found: bool = handle.library.gpuwm_mapping_parked(pointer)
    return found
