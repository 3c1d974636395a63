"""The events of gpuwmd, for loops and for asyncio, without polling and without a thread."""

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
from typing import TYPE_CHECKING, Any

from .. import errors
from . import abi, lib, threads
from .owner import Owner

if TYPE_CHECKING:
    from .._client import Client

_ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Event:
    """An event of gpuwmd.

    - seq: the number of the event. Numbers go up. Events of models that this user may not attach to
      leave gaps.
    - kind: one of docs/protocol/looking.md. "lost": some events can't be told any more, so list
      again.
      "disconnected": gpuwmd went away; the next event is its successor's.
    - model, tag, alias, version: "" if the kind has none.
    - data: everything that the event carries.
    """

    seq: int
    kind: str
    model: str = ""
    tag: str = ""
    alias: str = ""
    version: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def _event(event: abi.Event) -> Event:
    return Event(
        event.seq,
        lib.text(event.kind),
        lib.text(event.model),
        lib.text(event.tag),
        lib.text(event.alias),
        lib.text(event.version),
        json.loads(event.json or b"{}"),
    )


def position(after: int | None) -> int:
    """The C library's number for the place to begin at. Raises TypeError, Invalid."""
    if after is None:
        return abi.FROM_NOW_ON
    return lib.count(after, "after", abi.FROM_NOW_ON - 1)


class _Subscription:
    """One `struct gpuwm_events`, on a connection of its own."""

    def __init__(self, client: Client, after: int | None) -> None:
        self._library = lib.load()
        self.arrived: deque[Event] = deque()
        arrived = self.arrived
        out = ctypes.c_void_p()
        begin = position(after)
        lib.check(self._library.gpuwm_events_open(client._held(), begin, ctypes.byref(out)))
        self._owner: Owner | None = Owner(out.value or 0, self._library.gpuwm_events_close)
        self._function = abi.EventFunction(lambda event, _: arrived.append(_event(event.contents)))
        # A call that Ctrl-C interrupted goes on until something arrives.
        self._one_call = threading.Lock()

    def dispatch(self, wait_ms: int) -> None:
        """Appends the events that have arrived to `arrived`. The last one of a subscription is
        "disconnected"."""
        owner = self._held()
        if not self._one_call.acquire(timeout=_seconds(wait_ms)):
            return
        try:
            if self.arrived or self._owner is None:
                return
            dispatch = self._library.gpuwm_events_dispatch
            result = dispatch(owner, wait_ms, self._function, None)
            if self._owner is None:  # close() ended it, and so woke the call
                self.arrived.clear()
            elif result < 0 and not self.arrived:
                raise lib.last_error(result)
        finally:
            self._one_call.release()

    def _held(self) -> Owner:
        owner = self._owner
        if owner is None:
            raise errors.Closed("the events were closed")
        return owner

    async def readable(self) -> None:
        """Waits until there is something to dispatch, or the subscription was closed."""
        owner = self._held()  # this keeps its descriptor open during the wait
        await _readable(self._library.gpuwm_events_get_fd(owner))

    def close(self) -> None:
        """Closes the subscription, and wakes whoever waits for events."""
        owner, self._owner = self._owner, None
        if owner is not None:
            fd = os.dup(self._library.gpuwm_events_get_fd(owner))
            with sockets.socket(fileno=fd) as socket, contextlib.suppress(OSError):
                socket.shutdown(sockets.SHUT_RDWR)


def _seconds(wait_ms: int) -> float:
    """A timeout for a lock."""
    return wait_ms if wait_ms <= 0 else min(wait_ms / 1000, threading.TIMEOUT_MAX)


class Events:
    """The events since the subscription began, which is at the first use. `for` blocks, `async for`
    does not. It goes on over restarts of gpuwmd; if it missed events, it yields an event "lost".

    Only one loop at a time can use it. close() (from any thread), the end of a `with` block and
    garbage collection end the subscription, and the loop.
    """

    def __init__(self, client: Client, after: int | None = None) -> None:
        self._client = client
        self._after = after
        self._subscription: _Subscription | None = None
        self._closed = False

    def __repr__(self) -> str:
        is_open = "open" if self._subscription else "not open yet"
        after = "" if self._after is None else f" after event {self._after}"
        return f"<gpuwm.Events{after}, {'closed' if self._closed else is_open}>"

    @property
    def closed(self) -> bool:
        return self._closed

    def open(self) -> Events:
        """Subscribes now. Raises Disconnected or Unreachable if gpuwmd did not come back in
        time."""
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, subscription: _Subscription) -> Event | None:
        """Removes and returns the oldest event that has arrived."""
        if not subscription.arrived:
            return None
        event = subscription.arrived.popleft()
        self._after = event.seq
        if event.kind == "disconnected":
            subscription.close()
            self._subscription = None
        return event

    def next(self, wait: float = math.inf) -> Event | None:
        """Returns the next event, or None if none comes within `wait` seconds."""
        if self._subscription is None:
            threads.wait_for(self.open)
        subscription = self._subscription
        assert subscription is not None
        event = self._take(subscription)
        if event is None:
            milliseconds = lib.milliseconds(wait, "wait")

            def call() -> None:
                subscription.dispatch(milliseconds)

            threads.wait_for(call) if milliseconds else call()
            event = self._take(subscription)
        return event

    def __iter__(self) -> Iterator[Event]:
        while not self._closed:
            event = self.next()
            if event is not None:
                yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while not self._closed:
            # To connect may mean to wait for the next gpuwmd.
            if self._subscription is None:
                await threads.awaited(self.open)
            subscription = self._subscription
            if subscription is None:
                continue
            event = self._take(subscription)
            if event is not None:
                yield event
                continue
            # Events may have come with the answer to the subscription.
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
    """Does what Client.wait_job does, without blocking the event loop."""
    events = await threads.awaited(Events(client).open)
    with events:
        if _job_ended(client, job):
            return client.wait_job(job, 0)
        async for event in events:
            is_its_event = event.kind == "job" and event.data.get("job") == int(job)
            if is_its_event and event.data.get("state") in _ENDED:
                break
            if event.kind in ("lost", "disconnected") and _job_ended(client, job):
                break
    return client.wait_job(job, 0)


def _job_ended(client: Client, job: int) -> bool:
    try:
        found = client.jobs(job)
    except errors.NotFound:
        return True  # wait_job raises the job's error
    return not found or found[0]["state"] in _ENDED


# ---- a version ------------------------------------------------------------


async def ready(client: Client, ref: str) -> dict[str, Any]:
    """Does what Client.ready does, without blocking the event loop."""
    model = ref.partition("@")[0]
    with await threads.awaited(Events(client).open) as events:
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
    error: dict[str, Any] = row.get("error") or {}
    name = str(error.get("code", ""))
    code = getattr(errno, name, 0)
    kind = errors.KINDS.get(code, errors.Error)
    message = f"{row['model']}@{row['tag']} failed: {error.get('message', 'nobody says why')}"
    return kind(message, str(error.get("detail", "")), code=code, name=name)
