"""Queues of messages between processes that need not be related."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import operator
import os
import queue
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .. import _connection, errors
from .._c import abi_region, lib
from .._client import Client
from .._received import client_of
from . import regions
from .deadlines import Deadline
from .pickled import Message, Written, adumps, dumps, taken
from .pools import OWNERS, Owner, Pool, choice
from .refs import How, checked_how
from .send import Pools, Sending, pools_of

T = TypeVar("T")


class Queue(regions.Opened):
    """A bounded queue that any processes of this machine share, with the methods of
    multiprocessing.Queue, except join_thread and cancel_join_thread: a queue has no thread.

    Objects are pickled. As with every pickle, a message can run code in the process that gets it:
    share a queue only among processes that trust each other. Tensors of torch and arrays of NumPy
    travel through `pool`; without one on their device, as bytes of the message. A tensor arrives in
    place and read-only, see TensorRef.view, unless the getter wants copies. A TensorRef arrives as
    a TensorRef whose chunk is taken, which is given back if nobody opens it.

    Each message goes to one getter. Messages of one sender keep their order. Pickle a queue, or
    send its id, to give it to another process.
    """

    _kind = abi_region.QUEUE

    def __init__(
        self,
        maxsize: int,
        item_bytes: int = 65536,
        *,
        name: str | None = None,
        pool: Pools = None,
        owner: Owner = "process",
        wait: float | None = None,
        client: Client | None = None,
    ) -> None:
        """Creates a queue.

        - maxsize: how many messages may wait, 1 to 65,536.
        - item_bytes: how large a message may be, without tensors that are in a pool: up to 1 MiB.
        - name, owner, wait, client: as for Pool. A queue of a process ends with it.
        """
        options = abi_region.RegionOptions(
            name=lib.maybe_text(name, "name"),
            kind=abi_region.QUEUE,
            writers=abi_region.WRITERS_MANY,
            owner=choice(owner, "owner", OWNERS),
            items=_positive(maxsize, "maxsize", abi_region.ITEMS_MAX),
            item_bytes=_positive(item_bytes, "item_bytes", abi_region.ITEM_BYTES_MAX),
        )
        wait_ms = lib.milliseconds(wait, "wait")
        user, options.wait_ms = _connection.for_wait(wait_ms, client)
        self._become(regions.create(options, user), pool)

    @classmethod
    def open(
        cls,
        name: str,
        *,
        pool: Pools = None,
        wait: float | None = None,
        client: Client | None = None,
    ) -> Queue:
        """Opens a queue by its name or id. wait: as for Pool."""
        region = regions.opened_as(abi_region.QUEUE, name, abi_region.WRITE, client, wait)
        made = cls.__new__(cls)
        made._become(region, pool)
        return made

    def _become(self, region: regions.Region, pool: Pools) -> None:
        self._begin(region)
        self._pools = pools_of(pool)

    def _held(self) -> regions.Region:
        region = super()._held()
        if region.pid == os.getpid():
            return region
        # A forked child has to open it anew.
        client = client_of(region.client.socket)
        self._begin(regions.opened(self._kind, region.id, abi_region.WRITE, client))
        return self._region

    def _size(self) -> str:
        return f"{self.maxsize:,} items"

    def __enter__(self) -> Queue:
        return self

    def __reduce__(self) -> Any:
        region = self._held()
        return _received, (region.id, region.client.socket)

    # ---- looking ----

    @property
    def pool(self) -> tuple[Pool, ...]:
        """Where this process puts tensors: none, one pool, or one for each device. Assign them."""
        return self._pools

    @pool.setter
    def pool(self, pool: Pools) -> None:
        self._pools = pools_of(pool)

    @property
    def maxsize(self) -> int:
        return self._region.items

    def qsize(self) -> int:
        """How many messages wait."""
        found = ctypes.c_uint64()
        self._held().call("gpuwm_queue_length", ctypes.byref(found))
        return found.value

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return self.qsize() >= self.maxsize

    # ---- putting ----

    def put(
        self, obj: Any, block: bool = True, timeout: float | None = None, *, pool: Pools = None
    ) -> None:
        """Puts an object. Waits while the queue, or a pool, is full: for ever, or `timeout`
        seconds. Tensors are copied into `pool`, or that of the queue, on the current stream.

        The room of all tensors is taken in one step. Raises queue.Full, TooLarge, Closed after
        `shut`, OwnerDied, NoRoom at once if the tensors would not fit into an empty pool, and Busy
        if the time is over while a process that was stopped holds the queue's lock.
        """
        deadline = _deadline(block, timeout)
        sending = self._sending(pool, deadline)
        try:
            written = dumps(obj, sending, self._region.item_bytes)
        except errors.PoolFull as error:
            raise queue.Full(str(error)) from error
        with _withdrawing(sending):
            _patient(functools.partial(self._put, written), deadline, queue.Full)

    def put_nowait(self, obj: Any) -> None:
        self.put(obj, False)

    async def aput(self, obj: Any, timeout: float | None = None, *, pool: Pools = None) -> None:
        """Does what `put` does, without blocking the event loop, as `aget` does what `get` does. If
        it is cancelled, the message was not put."""
        deadline = _deadline(True, timeout)
        sending = self._sending(pool, deadline)
        try:
            written = await adumps(obj, sending, self._region.item_bytes)
        except errors.PoolFull as error:
            raise queue.Full(str(error)) from error
        with _withdrawing(sending):
            await _polled(functools.partial(self._put, written), deadline, queue.Full)

    def _sending(self, pool: Pools, deadline: Deadline) -> Sending:
        return Sending(self._pools if pool is None else pools_of(pool), deadline, others=1)

    def _put(self, written: Written, milliseconds: int) -> None:
        data, tokens, count = written
        self._held().call("gpuwm_queue_put", data, len(data), tokens, count, milliseconds)

    # ---- getting ----

    def get(
        self,
        block: bool = True,
        timeout: float | None = None,
        *,
        device: Any = None,
        how: How = "view",
    ) -> Any:
        """Gets the oldest object. Waits while the queue is empty: for ever, or `timeout` seconds.

        device, how: of the tensors that the sender put, as in `unwrap`. A TensorRef stays one.
        They are checked before a message is taken.

        Raises queue.Empty, Closed after `shut` if the queue is empty, OwnerDied, Lost if a tensor
        was withdrawn, and Busy as `put` does.
        """
        checked_how(how, device)
        message = _patient(self._get, _deadline(block, timeout), queue.Empty)
        return message.loads(device, how)

    def get_nowait(self) -> Any:
        return self.get(False)

    async def aget(
        self, timeout: float | None = None, *, device: Any = None, how: How = "view"
    ) -> Any:
        """Does what `get` does, without blocking the event loop. If it is cancelled, it has taken
        no message.

        It looks into the queue after naps of 1 ms at first and of 20 ms later, so a message may
        wait for so long. An `aget` that waits takes about 1 % of a CPU. Several that wait do not
        get messages in the order of their calls. While another process holds the queue's lock, as
        one that was stopped does, each look blocks the event loop for a second."""
        checked_how(how, device)
        deadline = _deadline(True, timeout)
        message = await _polled(self._get, deadline, queue.Empty)
        return message.loads(device, how)

    def _get(self, milliseconds: int) -> Message:
        out = ctypes.POINTER(abi_region.Message)()
        region = self._held()
        try:
            region.call("gpuwm_queue_get", milliseconds, None, 0, ctypes.byref(out), None)
        except errors.NotOpen:
            self._get_opening(region, milliseconds, out)
        try:
            return taken(out, _region_of)
        finally:
            region.library.gpuwm_message_free(out)

    def _get_opening(self, region: regions.Region, milliseconds: int, out: Any) -> None:
        """Opens the pools of the message. It comes without the chunks of a pool that is gone."""
        pool = ctypes.create_string_buffer(33)
        gone: list[bytes] = []
        while True:
            listed = (ctypes.c_char_p * len(gone))(*gone)
            try:
                region.call(
                    "gpuwm_queue_get", milliseconds, listed, len(gone), ctypes.byref(out), pool
                )
                return
            except errors.NotOpen:
                if not _opens(pool.value.decode(), region.client.socket):
                    gone.append(pool.value)

    def shut(self) -> None:
        """Ends the putting: `put` raises Closed everywhere, and `get` too when it is empty."""
        self._held().call("gpuwm_queue_shut")


def _positive(value: int, name: str, most: int) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise lib.wrong(name, value, "an int") from None
    if not 1 <= found <= most:
        raise errors.Invalid(f"{name}={found}", f"1 to {most:,}")
    return found


def _region_of(token: bytes) -> regions.Region:
    return regions.of_reference(token[:16].hex(), None)


def _received(name: str, socket: str | None) -> Queue:
    return Queue.open(name, client=client_of(socket))


def _opens(pool: str, socket: str | None) -> bool:
    """Opens the pool that a message needs. Returns False if the pool is gone."""
    try:
        regions.of_reference(pool, socket)
    except (errors.NotFound, errors.OwnerDied, errors.Ended):
        return False
    return True


# ---- waiting -----------------------------------------------------------------------------------


def _deadline(block: bool, timeout: float | None) -> Deadline:
    """As the standard library means them: without a timeout, for ever."""
    if not block:
        return _NOW
    if timeout is None:
        return _NEVER
    if timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return Deadline(timeout, "timeout")


_NOW, _NEVER = Deadline(None), Deadline(math.inf)
# How long a coroutine sleeps between two looks at the queue: at first, later, and when another
# process holds the queue's lock.
_NAP_S, _NAP_LONGEST_S, _NAP_HELD_S = 0.001, 0.02, 1.0


def _patient(
    call: Callable[[int], T],
    deadline: Deadline,
    late: type[Exception],
) -> T:
    """Makes `call(milliseconds)` until it succeeds. Raises `late` at the deadline if the queue is
    full or empty, and Busy if another process has the queue's lock.

    Each call is short. Between two calls Python handles signals, so that Ctrl-C ends the wait. No
    call goes on when `_patient` has ended, so that none takes a message that nobody gets."""
    milliseconds = 0
    while True:
        try:
            return call(milliseconds)
        except errors.NotYet as error:
            if deadline.left() == 0:
                raise late from error
        except errors.Busy:
            if deadline.left() == 0:
                raise
        milliseconds = math.ceil(min(deadline.left(), regions.UNSEEN_S) * 1000)


async def _polled(call: Callable[[int], T], deadline: Deadline, late: type[Exception]) -> T:
    """Does the same without blocking the event loop: it makes `call(0)` between naps, which get
    longer. No call runs while the coroutine sleeps, so that a cancelled one has done nothing."""
    import asyncio

    nap = _NAP_S
    while True:
        try:
            return call(0)
        except errors.NotYet as error:
            if deadline.left() == 0:
                raise late from error
        except errors.Busy:
            if deadline.left() == 0:
                raise
            nap = _NAP_HELD_S  # the call has blocked the event loop for a second
        await asyncio.sleep(min(nap, deadline.left()))
        nap = min(nap * 1.5, _NAP_LONGEST_S)


@contextlib.contextmanager
def _withdrawing(sending: Sending) -> Iterator[None]:
    """Takes the tensors of a message back if it is not put."""
    try:
        yield
    except BaseException:
        sending.withdraw()
        raise
