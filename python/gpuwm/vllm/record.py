"""The record of a group's active engine: the engine writes it into the lock file, and others read
it there."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterable
from typing import Any

from .. import errors
from .processes import API_SERVER, Process

TAKING_OVER, ACTIVE = "taking over", "active"
_FORMAT = 1
_PID_MAX = 1 << 22  # the kernel's PID_MAX_LIMIT


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a number identifies a process: one boot of one machine, one namespace of numbers."""

    boot: str
    namespace: int


def here() -> Place:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return Place(file.read().strip(), os.stat("/proc/self/ns/pid").st_ino)


@dataclasses.dataclass(frozen=True)
class Record:
    """An engine that has, or had, the lock.

    - state: TAKING_OVER or ACTIVE, since the time `since` (seconds since 1970).
    - processes: the API server first.
    - before: processes of the engine before this one that held GPU memory and may not be gone yet.
    """

    state: str
    since: float
    place: Place
    processes: tuple[Process, ...]
    before: tuple[Process, ...] = ()

    @property
    def server(self) -> Process:
        return self.processes[0]

    @property
    def holders(self) -> list[Process]:
        """The processes that may hold GPU memory: all but the API server."""
        return [*self.processes[1:], *self.before]

    def plain(self) -> dict[str, Any]:
        return {"format": _FORMAT, **dataclasses.asdict(self)}

    def encode(self) -> bytes:
        return json.dumps(self.plain()).encode() + b"\n"

    def is_of_another_boot(self) -> bool:
        return self.place.boot != here().boot

    def check_visible(self, path: str) -> None:
        """Raises Unsupported if the engine has the lock, but its processes can't be seen from
        here."""
        mine = here()
        if self.place == mine:
            return
        raise errors.Unsupported(
            f"the active engine of {path} (API server {self.server.pid} there) is in pid namespace "
            f"{self.place.namespace}, this engine in {mine.namespace}: its processes can't be "
            "watched from here",
            "let all engines of the group see each other: shareProcessNamespace: true in the pod, "
            "or --pid of docker run",
        )


def record_of(processes: list[Process], state: str, before: Iterable[Process] = ()) -> Record:
    return Record(state, time.time(), here(), tuple(processes), tuple(before))


def parse(content: bytes) -> Record | None:
    """Returns None if the content is not a complete record."""
    try:
        found = json.loads(content)
        place = Place(_text(found["place"]["boot"]), _number(found["place"]["namespace"]))
        processes, before = (
            tuple(
                Process(_text(each["role"]), _number(each["pid"]), _number(each["started"]))
                for each in found[name]
            )
            for name in ("processes", "before")
        )
        record = Record(_text(found["state"]), float(found["since"]), place, processes, before)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    first, *others = [process.role == API_SERVER for process in processes] or [False]
    if found.get("format") != _FORMAT or not first or any(others):
        return None
    return record if all(0 < each.pid <= _PID_MAX for each in processes + before) else None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value
