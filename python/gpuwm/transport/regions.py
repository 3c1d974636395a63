"""Regions of gpuwmd, the memory behind pools, queues, blocks and scratch, that this process has
open."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from .. import _connection, errors
from .._c import abi_region, lib, threads
from .._client import Client
from .._received import client_of

# How long a wait goes on before it notices a signal, that it was cancelled, or that its queue was
# closed; and how long a close waits for such calls.
UNSEEN_S, CALLS_S = 0.2, 1

_IN_A_CALL = "another thread is in a call on it"
_IS_KEPT = "it is in use"


class Kind(NamedTuple):
    """What messages call such regions, what opens one, and what keeps one open."""

    word: str
    opens: str
    is_used: str
    remedy: str


KINDS = {
    abi_region.POOL: Kind(
        "pool",
        "gpuwm.Pool.open()",
        "tensors of it are alive",
        "drop the views, and what `empty` gave",
    ),
    abi_region.QUEUE: Kind(
        "queue",
        "gpuwm.Queue.open()",
        "tensors of it are alive",
        "drop the views, and what `empty` gave",
    ),
    abi_region.BLOCKS: Kind(
        "block cache",
        "gpuwm.Blocks.open()",
        "tensors of it are alive, or this process holds or fills blocks of it",
        "drop the tensors and views, and release or publish the blocks",
    ),
    abi_region.SCRATCH: Kind(
        "scratch memory",
        "gpuwm.Scratch.open()",
        "tensors of it are alive",
        "drop the tensors and views",
    ),
}


class Keeper:
    """Keeps a region open while it lives. What lies in the region's memory has one."""

    def __init__(self, region: Region) -> None:
        self.region = region

    def __repr__(self) -> str:
        return f"<gpuwm Keeper of the {self.region.label}>"


# What codes mean in calls on a region that is open.
_SPECIAL: dict[int, type[errors.Error]] = {errno.ESHUTDOWN: errors.Ended}


def check(result: int, kind: int) -> int:
    """Returns the result of a call on a region of this kind, or raises its error."""
    if result < 0:
        raise error_of(result, kind)
    return result


def error_of(
    result: int, kind: int, special: Mapping[int, type[errors.Error]] = _SPECIAL
) -> errors.Error:
    """The error of this thread's last call on a region, in the words of its kind."""
    return lib.last_error(result, special, KINDS[kind].word)


class Region:
    """Owns a `struct gpuwm_region`. It is open until it is closed, or until the process ends.

    - opens: how many objects that callers have, such as Pool, it was opened for. 0: it was opened
      for a reference.
    - given_up: the last of these objects left its `with` block while tensors lived.
    - looks: only its control memory is mapped.
    - later: the region that took its place, when more rights were asked for.
    - pid: the process that opened it.
    """

    def __init__(self, pointer: int, client: Client, looks: bool = False) -> None:
        self.library: ctypes.CDLL = lib.load()
        self.client = client
        self.opens = 0
        self.given_up = False
        self.looks = looks
        self.later: Region | None = None
        self.reached: set[str] = set()  # other GPUs that reach its memory
        self.pid: int = os.getpid()
        self._there = [pointer]  # empty when it was closed
        self._calls: list[None] = []  # one entry for each call that is running
        self._keeper: weakref.ref[Keeper] | None = None
        self._keeping = threading.RLock()  # a finalizer may ask for the keeper too
        self._read(pointer)

    def _read(self, pointer: int) -> None:
        info = abi_region.RegionInfo()
        self.library.gpuwm_region_info(pointer, ctypes.byref(info))
        self.id: str = lib.text(info.id)
        self.name: str = lib.text(info.name)
        self.device: str = lib.text(info.device)
        self.kind: int = info.kind
        self.nbytes: int = info.bytes
        self.chunks: int = info.chunks
        self.items: int = info.items
        self.item_bytes: int = info.item_bytes
        self.blocks: int = info.blocks
        self.block_bytes: int = info.block_bytes
        self.clear: bool = info.clear
        self.slot: int = info.slot
        self.writes: bool = info.writes
        self.owns: bool = info.owns

    def __repr__(self) -> str:
        return f"<gpuwm {self.label}{', closed' * self.closed}>"

    @property
    def closed(self) -> bool:
        return not self._there

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"{KINDS[self.kind].word} {self.name or self.id}"

    def call(self, name: str, *arguments: Any) -> int:
        """Calls a function of the library that takes the region. Raises its error, or Closed."""
        function: Callable[..., int] = getattr(self.library, name)
        self._calls.append(None)
        try:
            return check(function(self._pointer(), *arguments), self.kind)
        finally:
            self._calls.pop()

    def _pointer(self) -> int:
        try:
            return self._there[-1]
        except IndexError:
            word = KINDS[self.kind].word
            raise errors.Closed(f"the {word} was closed", "open it anew") from None

    def has_ended(self) -> bool:
        try:
            self.call("gpuwm_region_check")
        except errors.Error:
            return True
        return False

    def allows(self, flags: int) -> bool:
        if self.looks and not flags & abi_region.LOOK:
            return False
        owns = self.owns or not flags & abi_region.OWN
        return owns and (self.writes or not flags & (abi_region.WRITE | abi_region.OWN))

    # ---- its memory ----

    def keeper(self) -> Keeper:
        """Raises InChild, since a child has none of the memory."""
        if self.pid != os.getpid():
            raise errors.InChild(
                f"the {self.label} was opened before a fork, and this is the child",
                "open it in the child",
            )
        with self._keeping:
            found = self._keeper and self._keeper()
            if not found:
                found = Keeper(self)
                self._keeper = weakref.ref(found)
            return found

    def memory(self) -> tuple[int, Keeper]:
        """The first address of its memory, and what keeps it. Raises Unsupported if the memory is
        not mapped."""
        keeper = self.keeper()
        address: int | None = self.library.gpuwm_region_address(self._pointer())
        if not address:
            raise errors.Unsupported(
                f"the {self.label} was opened with look=True, so its memory is not mapped here",
                "open it without look",
            )
        return address, keeper

    def reach(self, device: str) -> None:
        """Lets another GPU reach its memory, by gpuwmd's name of it."""
        self.call("gpuwm_region_reach", device.encode())
        self.reached.add(device)

    # ---- closing ----

    def close(self) -> None:
        """Closes it. Raises Busy, and does nothing, if it is used, or if another thread is in a
        call on it."""
        with _lock:
            # Calls of other threads go on, so that they can give back what they have.
            if self._there and self._is_kept():
                raise self._is_used(errors.Busy(_IS_KEPT))
            try:
                pointer = self._there.pop()  # from here on no call can begin
            except IndexError:
                return
            try:
                self._check_unused()
                # It waits for streams. If it is interrupted, it goes on by itself.
                close = self.library.gpuwm_region_close
                threads.wait_for(lambda: check(close(pointer), self.kind))
            except errors.Busy as error:
                self._there.append(pointer)
                raise self._is_used(error) from None
            except errors.Error:
                self._there.append(pointer)
                raise
            if _open.get(self.id) is self:
                del _open[self.id]

    def _check_unused(self) -> None:
        if not self._quiet():
            raise errors.Busy(_IN_A_CALL, "close it afterwards")
        if self._is_kept():
            raise errors.Busy(_IS_KEPT)

    def _is_kept(self) -> bool:
        # A child has a copy of the parent's keeper; the library says that it is a child.
        return self.pid == os.getpid() and self._keeper is not None and self._keeper() is not None

    def _is_used(self, error: errors.Busy) -> errors.Busy:
        """What to tell: tensors in terms of Python. The library itself tells of streams that have
        still to publish or release blocks."""
        is_of_blocks = self.kind == abi_region.BLOCKS and error.message != _IS_KEPT
        if error.message == _IN_A_CALL or is_of_blocks:
            return error
        kind = KINDS[self.kind]
        return errors.Busy(f"the {self.label} can't be closed: {kind.is_used}", kind.remedy)

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


def create(options: abi_region.RegionOptions, client: Client) -> Region:
    options.size = ctypes.sizeof(abi_region.RegionOptions)
    with _lock:
        _close_unused()
    return _asked(lambda: _made("gpuwm_region_create", options.kind, client, ctypes.byref(options)))


def opened(
    kind: int, name: str, flags: int, client: Client | None, wait: float | None = None
) -> Region:
    """Opens a region by its name or id, or finds it among those that are open. kind: what the
    caller takes it for. wait: as of Pool. Raises Busy if it is open with fewer rights and is
    used."""
    encoded = lib.text_bytes(name, "name")
    wait_ms = lib.milliseconds(wait, "wait")
    user = _connection.given(client) or _connection.shared()
    with _lock:
        found = _found(name, user)
        if found is not None and found.allows(flags):
            return found
        if found is not None:
            found.close()
        _close_unused()
        try:
            user, wait_ms = _connection.for_wait(wait_ms, client)
            made = _asked(lambda: _opened_now(kind, user, encoded, flags, wait_ms))
        except errors.Error:
            if found is not None:
                _open_again(found)
            raise
        if found is not None:
            _follow(found, made)
        return made


def opened_as(
    kind: int, name: str, flags: int, client: Client | None, wait: float | None
) -> Region:
    """Does the same, and raises Invalid if the region is of another kind."""
    region = opened(kind, name, flags, client, wait)
    if region.kind == kind:
        return region
    if region.opens == 0:
        with contextlib.suppress(errors.Error):
            region.close()
    raise errors.Invalid(f"{name} is no {KINDS[kind].word}", f"{KINDS[region.kind].opens} opens it")


def of_reference(region: str, socket: str | None) -> Region:
    """The pool with this id, of the gpuwmd that listens on `socket`. It is opened for reading if
    it is not open."""
    found = _open.get(region)
    return found or opened(abi_region.POOL, region, 0, client_of(socket))


def _opened_now(kind: int, client: Client, name: bytes, flags: int, wait_ms: int) -> Region:
    looks = bool(flags & abi_region.LOOK)
    return _made("gpuwm_region_open", kind, client, name, flags, wait_ms, looks=looks)


def _asked(call: Callable[[], Region]) -> Region:
    """Makes the call, which may wait. If it is interrupted, it goes on by itself, and the region
    that it brings is closed."""
    interrupted = threading.Event()

    def made() -> Region:
        region = call()
        if interrupted.is_set():
            region.close()
        return region

    try:
        return threads.wait_for(made)
    except BaseException:
        interrupted.set()
        raise


def _made(function: str, kind: int, client: Client, *arguments: Any, looks: bool = False) -> Region:
    out = ctypes.c_void_p()
    call = getattr(lib.load(), function)
    check(call(client.handle, *arguments, ctypes.byref(out)), kind)
    region = Region(out.value or 0, client, looks)
    _open[region.id] = region
    return region


def _follow(former: Region, later: Region) -> None:
    """Objects that have the former region use the later one from now on."""
    former.later = later
    later.opens += former.opens
    later.given_up = former.given_up
    for device in former.reached:
        later.reach(device)


def _open_again(former: Region) -> None:
    """More rights were refused: those who had the region keep the rights that they had."""
    flags = abi_region.LOOK if former.looks else abi_region.WRITE if former.writes else 0
    with contextlib.suppress(errors.Error):
        _follow(former, _opened_now(former.kind, former.client, former.id.encode(), flags, 0))


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
    """What Pool, Queue, Blocks and Scratch have in common."""

    _kind: ClassVar[int]
    _region: Region

    def _begin(self, region: Region) -> None:
        region.opens += 1
        region.given_up = False
        self._region = region
        self._ended = False

    def _held(self) -> Region:
        region = self._now()
        if self._ended:
            word = KINDS[region.kind].word
            raise errors.Closed(f"the {word} was closed", "open it anew")
        return region

    def _now(self) -> Region:
        """The region, or the one that took its place."""
        while self._region.later is not None:
            self._region = self._region.later
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
        return self._now().slot

    def check(self) -> None:
        """Raises OwnerDied, or Ended, if it takes no new work."""
        self._held().call("gpuwm_region_check")

    def close(self) -> None:
        """Closes it for this process, unless it was opened more often than it was closed. What this
        process owns ends, unless it belongs to a user. Raises Busy if tensors of it live."""
        if self._ended:
            return
        region = self._now()
        if region.opens == 1:
            region.close()
        self._left()

    def _left(self) -> None:
        self._now().opens -= 1
        self._ended = True

    def __exit__(self, kind: object, *_: object) -> None:
        """Closes it. If tensors of it live, they stay valid, and the package closes it later: when
        the process makes or opens another one, or ends. An error of the block comes first."""
        try:
            self.close()
        except errors.Busy:
            self._left()
            self._now().given_up = True
        except errors.Error:
            if kind is None:
                raise

    @classmethod
    def remove(cls, name: str, *, client: Client | None = None) -> None:
        """Ends it by its name or id, whoever uses it. Raises Refused if it belongs to another user,
        and NotFound."""
        encoded = lib.text_bytes(name, "name")
        user = _connection.given(client) or _connection.shared()
        call = lib.load().gpuwm_region_remove
        threads.wait_for(lambda: check(call(user.handle, encoded), cls._kind))

    def __repr__(self) -> str:
        what, region = type(self).__name__, self._region
        closed = ", closed" * self._ended
        return f"<gpuwm.{what} {self.name or self.id} on {region.device}: {self._size()}{closed}>"

    def _size(self) -> str:
        """What fits into it, for a person."""
        return f"{self._region.nbytes:,} bytes"
