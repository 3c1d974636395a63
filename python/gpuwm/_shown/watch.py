"""Waits for versions and jobs, and tells meanwhile what gpuwmd says of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from .._c import threads
from .._c.events import Event, Events
from . import logs
from .progress import Operation

if TYPE_CHECKING:
    import concurrent.futures

    from .._client import Client

T = TypeVar("T")

Concerns = Callable[[Event], bool]


def watched(
    call: Callable[[], T], told: Operation, client: Client, find: Callable[[], Concerns]
) -> T:
    """Makes a call that waits, as threads.wait_for does. If that takes a while, tells the operation
    of the jobs that it concerns, and the log that this process waits.

    find: returns what tells such jobs by their events. It may ask gpuwmd, on a client of its own:
    `client` is in the call.
    """
    if not (told.is_heard or logs.attach.isEnabledFor(logging.INFO)):
        return threads.wait_for(call)
    watch = _Watch(told, client, find)
    try:
        return threads.wait_for(call, watch.look)
    finally:
        watch.close()


class _Watch:
    """Reads the events of jobs, on a connection of its own. A gpuwmd that hangs holds up nobody:
    the subscription is opened on another thread, and the events are read as far as they are
    there."""

    def __init__(self, told: Operation, client: Client, find: Callable[[], Concerns]) -> None:
        self._told, self._find = told, find
        # From the oldest event that gpuwmd has: the job may have begun long ago.
        self._events = Events(client, 0)
        self._opened: concurrent.futures.Future[Concerns] | None = None

    def _open(self) -> Concerns:
        self._events.open()
        return self._find()

    def look(self) -> None:
        if self._opened is None:
            logs.attach.info("waits for %s", self._told.name)
            self._told.tell("waiting")
            self._opened = threads.begun(self._open)
        elif self._opened.done() and self._opened.exception() is None:
            self._read(self._opened.result())

    def _read(self, concerns: Concerns) -> None:
        last: Event | None = None
        while not self._events.closed and (event := self._next()) is not None:
            if event.kind == "disconnected":  # to subscribe again would wait for the next gpuwmd
                self._events.close()
            elif event.kind == "job" and concerns(event):
                last = event
        if last is not None and last.data["state"] in ("queued", "running"):
            self._told.tell(last.data["phase"], last.data["done"], last.data["total"])

    def _next(self) -> Event | None:
        try:
            return self._events.next(0)
        except errors.Error:
            self._events.close()
            return None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.add_done_callback(lambda _: self._events.close())
