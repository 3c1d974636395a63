"""Regions of gpuwmd, the memory behind pools and queues, that this process has open."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import _abi_region, _lib, _threads, connecting, errors, references
from ..client import Client

# How long a wait goes on before it notices a signal, that it was cancelled, or that its queue was
# closed; and how long a close waits for such calls.
UNSEEN_S, CALLS_S = 0.2, 1

_IN_A_CALL = "another thread is in a call on it"

# What codes mean in calls on a region that is open.
_SPECIAL: dict[int, type[errors.Error]] = {errno.ESHUTDOWN: errors.Ended}


def check(result: int) -> int:
    """Returns the result of a call on a region, or raises its error."""
    if result < 0:
        raise _lib.last_error(result, _SPECIAL)
    return result


class Region:
    """Owns a `struct gpuwm_region`. It is open until it is closed, or until the process ends.

    - opens: how many Pool or Queue objects it was opened for. 0: it was opened for a reference.
    - given_up: the last of these objects left its `with` block while tensors lived.
    - pid: the process that opened it.
    """

    def __init__(self, pointer: int, client: Client) -> None:
        self.library = _lib.load()
        self.client = client
        self.opens = 0
        self.given_up = False
        self.pid = os.getpid()
        self._there = [pointer]  # empty when it was closed
        self._calls: list[None] = []  # one entry for each call that is running
        info = _abi_region.RegionInfo()
        self.library.gpuwm_region_info(pointer, ctypes.byref(info))
        self.id = _lib.text(info.id)
        self.name = _lib.text(info.name)
        self.device = _lib.text(info.device)
        self.is_queue = info.kind == _abi_region.QUEUE
        self.nbytes: int = info.bytes
        self.chunks: int = info.chunks
        self.items: int = info.items
        self.item_bytes: int = info.item_bytes
        self.slot: int = info.slot
        self.writes: bool = info.writes
        self.owns: bool = info.owns

    @property
    def closed(self) -> bool:
        return not self._there

    def call(self, name: str, *arguments: Any) -> int:
        """Calls a function of the library that takes the region. Raises its error, or Closed."""
        function: Callable[..., int] = getattr(self.library, name)
        self._calls.append(None)
        try:
            return check(function(self._pointer(), *arguments))
        finally:
            self._calls.pop()

    def _pointer(self) -> int:
        try:
            return self._there[-1]
        except IndexError:
            kind = "queue" if self.is_queue else "pool"
            raise errors.Closed(f"the {kind} was closed", "open it anew") from None

    def has_ended(self) -> bool:
        try:
            self.call("gpuwm_region_check")
        except errors.Error:
            return True
        return False

    def allows(self, flags: int) -> bool:
        owns = self.owns or not flags & _abi_region.OWN
        return owns and (self.writes or not flags & (_abi_region.WRITE | _abi_region.OWN))

    def close(self) -> None:
        """Closes it. Raises Busy, and does nothing, if tensors of it live, or if another thread is
        in a call on it."""
        with _lock:
            try:
                pointer = self._there.pop()  # from here on no call can begin
            except IndexError:
                return
            try:
                if not self._quiet():
                    raise errors.Busy(_IN_A_CALL, "close it afterwards")
                # It waits for streams. If it is interrupted, it goes on by itself.
                _threads.wait_for(lambda: check(self.library.gpuwm_region_close(pointer)))
            except errors.Busy as error:
                self._there.append(pointer)
                raise self._is_used(error) from None
            except errors.Error:
                self._there.append(pointer)
                raise
            if _open.get(self.id) is self:
                del _open[self.id]

    def _is_used(self, error: errors.Busy) -> errors.Busy:
        """The error of the C library in terms of Python."""
        if error.message == _IN_A_CALL:
            return error
        kind = "queue" if self.is_queue else "pool"
        return errors.Busy(
            f"the {kind} {self.name or self.id} can't be closed: tensors of it are alive",
            "drop the views, and what `empty` gave",
        )

    def _quiet(self) -> bool:
        """Waits a moment for calls of other threads. Those of a queue return soon, and notice that
        it was closed."""
        late = time.monotonic() + CALLS_S
        while self._calls and time.monotonic() < late:
            time.sleep(0.005)
        return not self._calls


# ---- those of the process ----------------------------------------------------------------------

# The library opens a region once in a process.
_lock = threading.RLock()
_open: dict[str, Region] = {}  # by id


def _in_child() -> None:
    """Forgets what the parent has opened. The child opens what it needs by itself."""
    global _lock
    _lock = threading.RLock()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)


def create(options: _abi_region.RegionOptions, client: Client | None) -> Region:
    options.size = ctypes.sizeof(_abi_region.RegionOptions)
    user = connecting.given(client) or connecting.shared()
    with _lock:
        _close_unused()
    return _threads.wait_for(lambda: _made("gpuwm_region_create", user, ctypes.byref(options)))


def opened(name: str, flags: int, client: Client | None) -> Region:
    """Opens a region by its name or id, or finds it among those that are open. Raises Busy if it is
    open with fewer rights and tensors of it live."""
    encoded = _lib.text_bytes(name, "name")
    user = connecting.given(client) or connecting.shared()
    with _lock:
        found = _found(name, user)
        if found is not None and found.allows(flags):
            return found
        if found is not None:
            found.close()
        _close_unused()
        return _threads.wait_for(lambda: _made("gpuwm_region_open", user, encoded, flags))


def of_reference(region: str, socket: str | None) -> Region:
    """The region with this id, of the gpuwmd that listens on `socket`. It is opened for reading if
    it is not open."""
    found = _open.get(region)
    return found or opened(region, 0, references.client_of(socket))


def remove(name: str, client: Client | None) -> None:
    encoded = _lib.text_bytes(name, "name")
    user = connecting.given(client) or connecting.shared()
    user._call("gpuwm_region_remove", encoded)


def _made(function: str, client: Client, *arguments: Any) -> Region:
    out = ctypes.c_void_p()
    call = getattr(_lib.load(), function)
    check(call(client.handle, *arguments, ctypes.byref(out)))
    region = Region(out.value or 0, client)
    _open[region.id] = region
    return region


def _found(name: str, client: Client) -> Region | None:
    """The region with this id, or the one that has this name now. Raises OwnerDied or Ended for the
    id of a region that has ended."""
    found = _open.get(name)
    if found is not None:
        found.call("gpuwm_region_check")
        return found
    for region in list(_open.values()):
        is_named = region.name == name and region.client.socket == client.socket
        if is_named and not region.has_ended():  # else the name may be another region's
            return region
    return None


def _close_unused() -> None:
    """Closes regions that were given up, and those that have ended and were opened for references
    only, unless tensors of them live."""
    for region in list(_open.values()):
        if region.opens == 0 and (region.given_up or region.has_ended()):
            with contextlib.suppress(errors.Error):
                region.close()


# ---- what callers have -------------------------------------------------------------------------


class Opened:
    """What a Pool and a Queue have in common."""

    _region: Region

    def _begin(self, region: Region) -> None:
        region.opens += 1
        region.given_up = False
        self._region = region
        self._ended = False

    def _held(self) -> Region:
        if self._ended:
            raise errors.Closed(f"the {type(self).__name__.lower()} was closed", "open it anew")
        return self._region

    @property
    def id(self) -> str:
        """32 digits, by which any process of this machine can open it."""
        return self._region.id

    @property
    def name(self) -> str:
        """Its name. "": only its id names it."""
        return self._region.name

    @property
    def slot(self) -> int:
        """The number of this process among those that have it open, for `readers`."""
        return self._region.slot

    def check(self) -> None:
        """Raises OwnerDied, or Ended, if it takes no new work."""
        self._held().call("gpuwm_region_check")

    def close(self) -> None:
        """Closes it for this process, unless it was opened more often than it was closed. What this
        process owns ends, unless it belongs to a user. Raises Busy if tensors of it live."""
        if self._ended:
            return
        if self._region.opens == 1:
            self._region.close()
        self._left()

    def _left(self) -> None:
        self._region.opens -= 1
        self._ended = True

    def __exit__(self, kind: object, *_: object) -> None:
        """Closes it. If tensors of it live, they stay valid, and the package closes it later: when
        the process makes or opens another one, or ends. An error of the block comes first."""
        try:
            self.close()
        except errors.Busy:
            self._left()
            self._region.given_up = True
        except errors.Error:
            if kind is None:
                raise

    @staticmethod
    def remove(name: str, *, client: Client | None = None) -> None:
        """Ends a pool or queue by its name or id, whoever uses it. Raises Refused if it belongs to
        another user, and NotFound."""
        remove(name, client)

    def __repr__(self) -> str:
        what = type(self).__name__
        return f"<gpuwm.{what} {self.name or self.id}{' (closed)' if self._ended else ''}>"
