"""The processes of an engine, which another engine watches and kills.

A process number (pid) is used again after its process has ended. So a process is identified by its
number and the time at which it started, and is held by a descriptor (pidfd), which never refers to
another process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import select
import signal
from collections.abc import Iterable
from typing import Any

from .. import errors

API_SERVER, CORE, OTHER = "API server", "engine core", "process"
# the most parents between a rank and its API server: vLLM has one, a fork server adds one
CHAIN_MAX = 16
LONG_S = 3600.0  # poll() takes a limited number of milliseconds
_STATE, _PARENT, _STARTED = 0, 1, 19  # fields of /proc/PID/stat after the name: proc(5)


@dataclasses.dataclass(frozen=True)
class Process:
    """role: of the process in its engine, for people. started: clock ticks since boot."""

    role: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.role} (pid {self.pid})"


@dataclasses.dataclass(frozen=True)
class Stat:
    """The kernel's data of a process. state: one letter, "T" if it is stopped."""

    state: str
    parent: int
    started: int


def stat_of(pid: int) -> Stat | None:
    """Returns None if there is no such process, or this user must not see it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Stat(fields[_STATE], int(fields[_PARENT]), int(fields[_STARTED]))


def this(role: str) -> Process:
    """The calling process."""
    found = stat_of(os.getpid())
    if found is None:
        raise errors.Unsupported("/proc does not show this process", "mount /proc")
    return Process(role, os.getpid(), found.started)


def parents() -> list[list[int]]:
    """Number and start of this process's parent, of the parent's parent, and so on."""
    found: list[list[int]] = []
    pid = os.getppid()
    while pid > 0 and len(found) < CHAIN_MAX:
        stat = stat_of(pid)
        if stat is None:
            break
        found.append([pid, stat.started])
        pid = stat.parent
    return found


def of_ranks(server: Process, answers: Iterable[dict[str, Any]]) -> list[Process]:
    """The processes of an engine below its API server: each rank, and those between the ranks and
    the API server. answers: of the rank method `gpuwm_process`.

    Raises Unsupported if a rank is not a descendant of the API server.
    """
    found: dict[int, Process] = {}
    between: dict[int, Process] = {}
    for answer in answers:
        rank = f"rank {answer['rank']}"
        found[answer["pid"]] = Process(rank, answer["pid"], answer["started"])
        above = [Process(CORE, pid, started) for pid, started in answer["parents"]]
        numbers = [(each.pid, each.started) for each in above]
        if (server.pid, server.started) not in numbers:
            raise errors.Unsupported(
                f"{rank} (pid {answer['pid']}) was not started by the API server (pid {server.pid})"
                f" or a process below it: its parents are {[pid for pid, _ in numbers]}",
                "run all ranks on this machine: --distributed-executor-backend mp or uni",
            )
        top = numbers.index((server.pid, server.started))
        between |= {each.pid: each for each in above[:top]}
    return [*(each for pid, each in between.items() if pid not in found), *found.values()]


class Watch:
    """Holds processes by descriptors. `gone` has the processes that have ended, or whose numbers
    belong to other processes now."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self.gone: list[Process] = []
        self._held: dict[int, Process] = {}
        for process in processes:
            self._hold(process)
        self.look()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()

    @property
    def living(self) -> list[Process]:
        """The processes that lived at the last `look`."""
        return list(self._held.values())

    @property
    def descriptors(self) -> list[int]:
        """A descriptor for each of `living`. It is readable when the process has ended."""
        return list(self._held)

    def look(self) -> None:
        """Moves the processes that have ended from `living` to `gone`."""
        for descriptor in _readable(self.descriptors, 0):
            self.gone.append(self._held.pop(descriptor))
            os.close(descriptor)

    def wait(self, seconds: float, others: Iterable[int] = ()) -> None:
        """Waits until a process ends, one of the other descriptors is readable, or the time is
        over."""
        _readable([*self._held, *others], seconds)
        self.look()

    def kill(self, which: Iterable[Process]) -> list[Process]:
        """Kills those of these processes that live, stopped ones too, and returns them. They may
        take a while to end: see `wait`."""
        return self.send(which, signal.SIGKILL)

    def send(self, which: Iterable[Process], number: int) -> list[Process]:
        """Sends a signal to those of these processes that live, and returns them. Raises Refused if
        a process belongs to another user."""
        wanted, done = set(which), []
        for descriptor, process in self._held.items():
            if process not in wanted:
                continue
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                continue  # it has ended since the last look
            except PermissionError:
                raise errors.Refused(
                    f"user {os.getuid()} may not end the {process} of another engine",
                    "start all engines of a group as the same user",
                ) from None
            done.append(process)
        return done

    def stopped(self) -> list[Process]:
        """The processes that a signal or a debugger has stopped."""
        stats = [(process, stat_of(process.pid)) for process in self.living]
        return [process for process, stat in stats if stat is not None and stat.state in "Tt"]

    def _hold(self, process: Process) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            self.gone.append(process)
            return
        except OSError as error:
            # It is not the number of a process, but perhaps of a thread.
            if error.errno in (errno.EINVAL, errno.ENOENT):
                self.gone.append(process)
                return
            raise errors.Unsupported(
                f"the {process} can't be watched: {os.strerror(error.errno or 0)}",
                "a standby needs Linux 5.4 or newer, and a seccomp profile that allows pidfd_open",
            ) from error
        # If this user can't see the process, it counts as the right one.
        stat = stat_of(process.pid)
        if stat is not None and stat.started != process.started:
            os.close(descriptor)
            self.gone.append(process)
            return
        self._held[descriptor] = process


def _readable(descriptors: list[int], seconds: float) -> list[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1e3)]


def end_with(watch: Watch, others: Iterable[Process]) -> None:
    """Waits until a process that `watch` holds has ended, then kills these others and the calling
    process. It never returns."""
    while not watch.gone:
        watch.wait(LONG_S)
    with contextlib.suppress(errors.Error), Watch(others) as orphans:
        orphans.kill(orphans.living)
    os.kill(os.getpid(), signal.SIGKILL)
