"""Ends the active engine of a group, so that a standby takes over.

python -m gpuwm.vllm takeover --lock /run/llama/lock --drain 60
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from .. import errors
from . import record as records
from .lockfile import LockFile
from .processes import Process, Watch
from .record import ACTIVE, Record
from .standby import GONE_S, LOOK_S

# How long the active engine may take to end after SIGTERM. vLLM itself waits for requests in flight
# only with --shutdown-timeout.
DRAIN_S = 10.0
# How long a standby may take to take over. It takes less than a second, unless it is still
# starting.
TAKEN_S = 60.0

Say = Callable[[str], None]


def takeover(path: str, drain: float = DRAIN_S, say: Say = print) -> Record:
    """Ends the active engine of the group whose lock lies at `path`. Returns the record of the
    engine that is active then. say: called with a line on each step.

    The API server gets SIGTERM. After `drain` seconds, all processes of the engine are killed; at
    once if `drain` is 0, or if one of them is stopped.

    Raises NotFound (there is no such lock, or no engine is active), TimedOut (no other engine took
    over, or a process does not end), Invalid and Unsupported (see LockFile and Record), and Refused
    (the engine belongs to another user).
    """
    file = LockFile(path, create=False)
    try:
        before = _active(file)
        with Watch(before.processes) as watch:
            _end(watch, before, drain, say)
        began = time.monotonic()
        after = _successor(file, before)
        say(f"{after.server} is active now, after {time.monotonic() - began:.2f} s")
        return after
    finally:
        file.close()


def _active(file: LockFile) -> Record:
    found = records.parse(file.read())
    if found is not None and not found.is_of_another_boot():
        found.check_visible(file.path)
        with Watch(found.processes) as watch:
            if watch.living:
                return found
    raise errors.NotFound(
        f"no engine of {file.path} is active",
        "if an engine of the group runs, GET /gpuwm/standby and its log say what it does",
    )


def _end(watch: Watch, engine: Record, drain: float, say: Say) -> None:
    stopped = watch.stopped()
    if stopped:
        say(f"{_names(stopped)} can't end in order: stopped (SIGSTOP)")
    elif drain > 0 and engine.server in watch.living:
        watch.send([engine.server], signal.SIGTERM)
        say(f"{engine.server} got SIGTERM")
        _wait(watch, drain)
    if watch.living:
        killed = watch.kill(watch.living)
        say(f"killed {_names(killed)}")
        _wait(watch, GONE_S)
    if watch.living:
        raise errors.TimedOut(
            f"{_names(watch.living)} did not end within {GONE_S:g} s of SIGKILL",
            "a process that is stuck in a driver ends when the driver lets it go, or the machine "
            "starts again; standbys wait for it",
        )


def _wait(watch: Watch, seconds: float) -> None:
    """Waits until all processes have ended, or the time is over."""
    end = time.monotonic() + seconds
    while watch.living and (left := end - time.monotonic()) > 0:
        watch.wait(left)


def _successor(file: LockFile, before: Record) -> Record:
    end = time.monotonic() + TAKEN_S
    while (left := end - time.monotonic()) > 0:
        file.forget_changes()
        found = records.parse(file.read())
        if found is not None and found.server != before.server and found.state == ACTIVE:
            return found
        with Watch([]) as nothing:
            nothing.wait(min(left, LOOK_S), [file.changes])
    raise errors.TimedOut(
        f"the engine has ended, and within {TAKEN_S:g} s no other engine of {file.path} took over",
        "start a standby; if one runs, its log says what keeps it",
    )


def _names(processes: list[Process]) -> str:
    return ", ".join(map(str, processes))
