"""What happens at gpuwmd, for loops and for asyncio: no polling, no thread."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import math
import os
import socket as sockets
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _abi, _lib, _threads, errors
from ._owner import Owner

if TYPE_CHECKING:
    from .client import Client

_ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Event:
    """seq: goes up; events of models that this user may not attach to leave gaps. kind: as
    docs/protocol.md has them; "lost": some can't be told any more, list again; "disconnected":
    gpuwmd went away, the next event is its successor's.
    model, tag, alias, version: "" where the kind has none. data: all that the event carries."""

    seq: int
    kind: str
    model: str = ""
    tag: str = ""
    alias: str = ""
    version: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def _event(told: _abi.Event) -> Event:
    return Event(
        told.seq,
        _lib.text(told.kind),
        _lib.text(told.model),
        _lib.text(told.tag),
        _lib.text(told.alias),
        _lib.text(told.version),
        json.loads(told.json or b"{}"),
    )


def position(after: int | None) -> int:
    """The C library's number for where to begin. TypeError, Invalid."""
    if after is None:
        return _abi.FROM_NOW_ON
    return _lib.count(after, "after", _abi.FROM_NOW_ON - 1)


class _Subscription:
    """One `struct gpuwm_events`, on a connection of its own."""

    def __init__(self, client: Client, after: int | None) -> None:
        self._library = _lib.load()
        self.arrived: deque[Event] = deque()
        arrived = self.arrived
        out = ctypes.c_void_p()
        begin = position(after)
        _lib.check(self._library.gpuwm_events_open(client._held(), begin, ctypes.byref(out)))
        self._owner: Owner | None = Owner(out.value or 0, self._library.gpuwm_events_close)
        self._function = _abi.EventFunction(lambda told, _: arrived.append(_event(told.contents)))
        # A call that Ctrl-C left to itself goes on until something arrives.
        self._one_call = threading.Lock()

    def dispatch(self, wait_ms: int) -> None:
        """Adds what arrives to `arrived`. The last one is "disconnected"."""
        owner = self._held()
        if not self._one_call.acquire(timeout=_seconds(wait_ms)):
            return
        try:
            if self.arrived or self._owner is None:
                return
            dispatch = self._library.gpuwm_events_dispatch
            result = dispatch(owner, wait_ms, self._function, None)
            if self._owner is None:  # what it was woken with
                self.arrived.clear()
            elif result < 0 and not self.arrived:
                raise _lib.last_error(result)
        finally:
            self._one_call.release()

    def _held(self) -> Owner:
        owner = self._owner
        if owner is None:
            raise errors.Closed("the events were closed")
        return owner

    async def readable(self) -> None:
        """Until there is something to dispatch, or it was closed."""
        owner = self._held()  # its descriptor stays open meanwhile
        await _readable(self._library.gpuwm_events_get_fd(owner))

    def close(self) -> None:
        """Whoever waits for events is woken."""
        owner, self._owner = self._owner, None
        if owner is not None:
            fd = os.dup(self._library.gpuwm_events_get_fd(owner))
            with sockets.socket(fileno=fd) as socket, contextlib.suppress(OSError):
                socket.shutdown(sockets.SHUT_RDWR)


def _seconds(wait_ms: int) -> float:
    """For a lock."""
    return wait_ms if wait_ms <= 0 else min(wait_ms / 1000, threading.TIMEOUT_MAX)


class Events:
    """Events since the subscription began, which is the first use: `for` blocks, `async for` does
    not. Goes on over restarts of gpuwmd; what they missed is told as "lost".

    One loop at a time. close() from any thread, `with` or its end as garbage ends the subscription,
    and the loop.
    """

    def __init__(self, client: Client, after: int | None = None) -> None:
        self._client = client
        self._after = after
        self._subscription: _Subscription | None = None
        self._closed = False

    def open(self) -> Events:
        """Subscribes now. Disconnected, Unreachable: gpuwmd did not come back in time."""
        if self._closed:
            raise errors.Closed("the events were closed")
        if self._subscription is None:
            self._subscription = _Subscription(self._client, self._after)
        return self

    def close(self) -> None:
        self._closed = True
        if self._subscription is not None:
            self._subscription.close()

    def __enter__(self) -> Events:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, subscription: _Subscription) -> Event | None:
        """The first that arrived and was not told."""
        if not subscription.arrived:
            return None
        event = subscription.arrived.popleft()
        self._after = event.seq
        if event.kind == "disconnected":
            subscription.close()
            self._subscription = None
        return event

    def next(self, wait: float = math.inf) -> Event | None:
        """The next event; None when it does not come within `wait` seconds."""
        if self._subscription is None:
            _threads.wait_for(self.open)
        subscription = self._subscription
        assert subscription is not None
        event = self._take(subscription)
        if event is None:
            milliseconds = _lib.milliseconds(wait, "wait")

            def call() -> None:
                subscription.dispatch(milliseconds)

            _threads.wait_for(call) if milliseconds else call()
            event = self._take(subscription)
        return event

    def __iter__(self) -> Iterator[Event]:
        while not self._closed:
            event = self.next()
            if event is not None:
                yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while not self._closed:
            # Connecting can wait for the next gpuwmd.
            if self._subscription is None:
                await _threads.awaited(self.open)
            subscription = self._subscription
            if subscription is None:
                continue
            event = self._take(subscription)
            if event is not None:
                yield event
                continue
            # Some may have come with the answer to the subscription.
            subscription.dispatch(0)
            if not (subscription.arrived or self._closed):
                await subscription.readable()


async def _readable(fd: int) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, tell)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def job_end(client: Client, job: int) -> bool:
    """As Client.wait_job, without blocking anybody."""
    events = await _threads.awaited(Events(client).open)
    with events:
        if _job_ended(client, job):
            return client.wait_job(job, 0)
        async for event in events:
            told = event.kind == "job" and event.data.get("job") == int(job)
            if told and event.data.get("state") in _ENDED:
                break
            if event.kind in ("lost", "disconnected") and _job_ended(client, job):
                break
    return client.wait_job(job, 0)


def _job_ended(client: Client, job: int) -> bool:
    try:
        found = client.jobs(job)
    except errors.NotFound:
        return True  # wait_job says what became of it
    return not found or found[0]["state"] in _ENDED


# ---- a version ------------------------------------------------------------


async def ready(client: Client, ref: str) -> dict[str, Any]:
    """As Client.ready."""
    model = ref.partition("@")[0]
    with await _threads.awaited(Events(client).open) as events:
        found = _ready(client, ref)
        if found is not None:
            return found
        async for event in events:
            if event.model == model or event.kind in ("lost", "disconnected"):
                found = _ready(client, ref)
                if found is not None:
                    return found
    raise errors.Closed("the events were closed")


def _ready(client: Client, ref: str) -> dict[str, Any] | None:
    model, _, tag = ref.partition("@")
    found = client.list(model)
    aliases = {row["alias"]: row["version"] for row in found["aliases"] if row["model"] == model}
    named = aliases.get(tag or "current")
    rows: list[dict[str, Any]] = found["versions"]
    for row in rows:
        if row["version"] == named or (row["model"] == model and row["tag"] == tag):
            if row["state"] == "failed":
                raise _failure(row)
            if row["state"] == "ready":
                return row
    return None


def _failure(row: dict[str, Any]) -> errors.Error:
    told: dict[str, Any] = row.get("error") or {}
    name = str(told.get("code", ""))
    code = getattr(errno, name, 0)
    kind = errors.KINDS.get(code, errors.Error)
    message = f"{row['model']}@{row['tag']} failed: {told.get('message', 'nobody says why')}"
    return kind(message, str(told.get("detail", "")), code=code, name=name)
