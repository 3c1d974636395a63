"""A group of engines of which one is active and the others stand by.

A lock decides which engine is active (`gpuwm.vllm.lockfile`). The active engine's record in the
file names all of its processes (`gpuwm.vllm.record`). Each standby holds a pidfd of each of them.
As soon as one of them has ended:

1. The lock becomes free. If the API server has ended, the kernel gives the lock back. Otherwise the
   API server does so itself; if it does not do so at once, it is killed.
2. One standby gets the lock, and the others watch that one. It kills what is left of the engine
   before it and holds GPU memory: such an engine can't serve. An API server that gave the lock back
   is left alone, so that it can send its last answers.
3. When the kernel says that all of these processes are gone, their memory is free. It comes back
   bit by bit before that, so the ranks take it from the moment of the kill on.

A process that is stopped (SIGSTOP), or that hangs, has not ended: nothing happens. The command
`takeover` ends such an engine.

This module needs no event loop and no vLLM.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from .. import errors
from . import record as records
from .lockfile import LockFile
from .processes import LONG_S, Process, Watch
from .record import ACTIVE, TAKING_OVER, Record

log: logging.Logger = logging.getLogger("vllm.gpuwm")

# How long a process may take to be gone after SIGKILL: some milliseconds, with a GPU some hundred.
# One that takes longer is stuck in the kernel.
GONE_S = 10.0
# How long an API server may take to give the lock back after its engine core has ended. It takes a
# millisecond.
HANDOVER_S = 0.1
# The longest time between two looks. Everything that a standby waits for makes a descriptor
# readable. But a file system may not report changes, and then the record of the next active engine
# would go unnoticed.
LOOK_S = 1.0

# The moments of a takeover. The lock may be free before all processes are gone, or after that.
DIED, GONE, LOCKED, OCCUPIED, OPENED = "died", "gone", "locked", "occupied", "opened"


class Group:
    """This engine's part in the group whose lock lies at `path`.

    server: this engine's API server, the calling process. below: its engine core and ranks. Raises
    the errors of LockFile. Call `join`, `wait_until_gone` and `serve` in this order, one after the
    other. Any thread may call `moments`, `seconds` and `note`.
    """

    def __init__(self, path: str, server: Process, below: list[Process]) -> None:
        self.path = path
        self.active: Record | None = None
        self._processes = [server, *below]
        self._own = Watch(below)
        self._file = LockFile(path)
        self._moments: dict[str, float] = {}
        self._unreadable_logged = False
        self._logged_end: Record | None = None
        self._invisible: Record | None = None
        self._before: Watch | None = None

    def join(self) -> None:
        """Returns when this engine has the lock, its record is in the file, and what was left of
        the engine before it is killed. `moments` has the times of these steps.

        Raises Lost if a process of this engine has ended, Unsupported if the active engine can't be
        seen from here, and Refused if that engine belongs to another user. After any error this
        engine has left the group.
        """
        try:
            while not self._try_lock():
                self._file.forget_changes()
                # the lock may have been given back before the file changed
                if not self._try_lock():
                    self._stand_by()
            self._check_own()
            self._succeed()
        except BaseException:
            self.leave()
            raise

    def wait_until_gone(self) -> None:
        """Returns when no process of the engine before this one has GPU memory."""
        if self._before is None:
            return
        with self._before as watch:
            self._wait_gone(watch, watch.living)
        self.note(GONE)

    def serve(self) -> None:
        """Tells the group that this engine serves. Returns when a process below this API server has
        ended, and the lock is given back."""
        self._write(ACTIVE)
        while not self._own.gone:
            self._own.wait(LONG_S)
        self.leave()

    def leave(self) -> None:
        """Gives the lock back."""
        self._file.close()

    def end(self) -> None:
        """Kills this engine, but not the calling process."""
        self._own.kill(self._own.living)

    def note(self, what: str) -> None:
        self._moments.setdefault(what, time.monotonic())

    def moments(self) -> dict[str, float]:
        """The time at which each step of the takeover was done, in seconds of CLOCK_MONOTONIC."""
        return dict(self._moments)

    def seconds(self) -> dict[str, float]:
        """The seconds that each step took, since the one before it."""
        found = sorted(self.moments().items(), key=lambda item: item[1])
        return {what: at - found[n][1] for n, (what, at) in enumerate(found[1:])}

    # ---- as a standby ----

    def _try_lock(self) -> bool:
        if not self._file.try_lock():
            return False
        if self.active is not None:
            self.note(DIED)  # the lock was free before a pidfd said so
        self.note(LOCKED)
        return True

    def _stand_by(self) -> None:
        """Waits as a standby. Returns when the lock may be free, or there is another record."""
        self.active = found = records.parse(self._file.read())
        if found is None or found.is_of_another_boot():
            self.active = None
            self._tell_unreadable()
            self._wait(None)
            return
        if found.place != records.here() and found != self._invisible:
            # perhaps it is the record of an engine before the one that has the lock
            self._invisible = found
            self._wait(None)
            return
        found.check_visible(self.path)
        with Watch(found.processes) as watch:
            if not watch.gone:
                self._moments.clear()
                self._wait(watch)
            if not watch.gone:
                return
            self.note(DIED)
            self._end(found, watch)
            if records.parse(self._file.read()) != found:
                return
        if not self._try_lock():
            self._wait(None)  # another standby has the lock, and will write its record

    def _end(self, engine: Record, watch: Watch) -> None:
        """Waits for the lock of an engine of which a process has ended. Returns when this engine
        has the lock, when there is another record, or when no process of that engine is left."""
        self._tell_end(engine, watch)
        deadline = time.monotonic() + HANDOVER_S
        while watch.living and not self._try_lock():
            if time.monotonic() > deadline:
                self._wait_gone(watch, watch.kill(watch.living))
                return
            watch.wait(deadline - time.monotonic(), [self._file.changes])
            self._file.forget_changes()
            if records.parse(self._file.read()) != engine:
                return

    def _succeed(self) -> None:
        """Takes over, once this engine has the lock: replaces the record of the engine before it,
        and kills what is left of that engine and holds GPU memory."""
        last = self._last()
        if last is None:
            self._write(TAKING_OVER)
            return
        self._before = watch = Watch(last.holders)
        # Writes it at once: then others watch this engine, and leave the API server of the engine
        # before it alone.
        self._write(TAKING_OVER, watch.living)
        if watch.living:
            self._tell_end(last, watch)
            watch.kill(watch.living)

    def _last(self) -> Record | None:
        """The record of the engine before this one, if its processes may still be there."""
        # If somebody removed the file, it was made anew and has no record.
        found = records.parse(self._file.read()) or self.active
        if found is None or found.is_of_another_boot():
            return None
        if found.place == records.here():
            return found
        log.warning(
            "gpuwm: the record in %s is of pid namespace %d, which this engine can't see: it "
            "takes the lock, since nobody holds it",
            self.path,
            found.place.namespace,
        )
        return None

    def _wait(self, watch: Watch | None) -> None:
        """Waits until something happens to the processes in `watch`, to this engine or to the
        file."""
        held = watch or Watch([])
        held.wait(LOOK_S, [self._file.changes, *self._own.descriptors])
        self._check_own()

    def _wait_gone(self, watch: Watch, processes: list[Process]) -> None:
        deadline, logged = time.monotonic() + GONE_S, False
        while late := [process for process in processes if process in watch.living]:
            watch.wait(LOOK_S if logged else deadline - time.monotonic())
            if not logged and time.monotonic() > deadline and set(late) & set(watch.living):
                logged = True
                log.error(
                    "gpuwm: %s of the engine before this one did not end within %g s of SIGKILL, "
                    "and may hold GPU memory: this engine waits. A process that is stuck in a "
                    "driver ends when the driver lets it go, or the machine starts again",
                    _names(late),
                    GONE_S,
                )

    def _check_own(self) -> None:
        self._own.look()
        if self._own.gone:
            raise errors.Lost(
                f"{_names(self._own.gone)} of this engine ended while it stood by",
                "its log says why",
            )

    # ---- records ----

    def _write(self, state: str, before: list[Process] | None = None) -> None:
        self.active = records.record_of(self._processes, state, before or [])
        self._file.write(self.active.encode())

    def _tell_unreadable(self) -> None:
        if self._unreadable_logged or not self._file.read():
            return
        self._unreadable_logged = True
        log.warning(
            "gpuwm: %s is locked, but what it says is no record of an engine that could hold the "
            "lock: this engine waits for the lock",
            self.path,
        )

    def _tell_end(self, engine: Record, watch: Watch) -> None:
        if self._logged_end == engine:
            return
        self._logged_end = engine
        log.warning(
            "gpuwm: the active engine has ended (%s); what is left of it: %s",
            _names(watch.gone) or "its lock is free",
            _names(watch.living) or "nothing",
        )


def _names(processes: list[Process]) -> str:
    return ", ".join(map(str, processes))


def plain(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else record.plain()
