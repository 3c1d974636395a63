"""Results that this process keeps for itself, where $GPUWM_MODE is local: no gpuwmd is asked."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .entries import Entry


class _Kept(NamedTuple):
    value: Any
    made: float  # seconds since 1970
    until: float


class _Model:
    """The results of one builder, the oldest first.

    building: by tag, the lock of whoever makes the result. What is made under a lock that is no
    longer there was invalidated meanwhile.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.building: dict[str, threading.RLock] = {}
        self.kept: dict[str, _Kept] = {}

    def live(self, tag: str) -> _Kept | None:
        kept = self.kept.get(tag)
        if kept is not None and kept.until <= time.time():
            del self.kept[tag]
            return None
        return kept

    def keep(self, tag: str, made: _Kept, keep_last: int | None) -> None:
        self.kept[tag] = made
        while keep_last is not None and len(self.kept) > keep_last:
            del self.kept[next(iter(self.kept))]

    def end(self, tag: str, building: threading.RLock) -> None:
        with self.lock:
            if self.building.get(tag) is building:
                del self.building[tag]


_lock = threading.RLock()
_models: dict[str, _Model] = {}


def _in_child() -> None:
    """A lock of the parent's may never be free here. What the parent has made stays."""
    global _lock
    _lock = threading.RLock()
    for model in _models.values():
        model.lock = threading.RLock()
        model.building.clear()


os.register_at_fork(after_in_child=_in_child)


def _model(name: str) -> _Model:
    with _lock:
        return _models.setdefault(name, _Model())


def obtained(
    name: str, tag: str, make: Callable[[], Any], ttl: float, keep_last: int | None
) -> Any:
    """What is kept under the tag. Of several threads that come at once, one makes it."""
    model = _model(name)
    while True:
        with model.lock:
            building = model.building.setdefault(tag, threading.RLock())
        with building:
            with model.lock:
                kept = model.live(tag)
                if kept is not None:
                    return kept.value
                if model.building.get(tag) is not building:
                    continue
            try:
                value = make()
                now = time.time()
                with model.lock:
                    if model.building.get(tag) is building:
                        model.keep(tag, _Kept(value, now, now + ttl), keep_last)
                return value
            finally:
                model.end(tag, building)


def invalidate(name: str, tag: str) -> bool:
    """Forgets what is kept under the tag, and keeps nothing that is being made. Returns whether
    something was kept."""
    model = _model(name)
    with model.lock:
        was_live = model.live(tag) is not None
        model.kept.pop(tag, None)
        model.building.pop(tag, None)
        return was_live


def building(name: str) -> list[str]:
    """The tags of the results that are being made."""
    model = _model(name)
    with model.lock:
        return list(model.building)


def entries(name: str) -> list[Entry]:
    model = _model(name)
    with model.lock:
        live = [(tag, model.live(tag)) for tag in list(model.kept)]
        return [_entry(tag, kept) for tag, kept in live if kept is not None]


def _entry(tag: str, kept: _Kept) -> Entry:
    expires = None if math.isinf(kept.until) else kept.until
    return Entry(tag, None, "local", None, None, kept.made, expires)
