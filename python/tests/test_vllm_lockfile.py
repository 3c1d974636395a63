"""The lock of a group of engines, the record in it, and the processes that the record names."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from standing import stop

import gpuwm
from gpuwm.vllm import lockfile, processes
from gpuwm.vllm import record as records
from gpuwm.vllm.lockfile import LockFile
from gpuwm.vllm.processes import API_SERVER, Process, Watch

SERVER = Process(API_SERVER, 10, 1000)
CORE = Process("engine core", 11, 1001)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "lock")


@pytest.fixture
def sleeper() -> Iterator[Process]:
    """A process that does nothing."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    stat = processes.stat_of(child.pid)
    assert stat is not None
    yield Process("rank 0", child.pid, stat.started)
    child.kill()
    child.wait()


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


# ---- the lock ----------------------------------------------------------------------------------


def test_one_has_the_lock_and_others_learn_when_it_is_free(path: str) -> None:
    first, second = LockFile(path), LockFile(path)
    assert first.try_lock()
    assert first.try_lock()
    assert not second.try_lock()
    second.forget_changes()
    first.write(b"a record")
    assert is_readable(second.changes)
    assert second.read() == b"a record"
    first.write(b"short")
    assert second.read() == b"short   "
    second.forget_changes()
    assert not is_readable(second.changes)
    first.close()
    assert is_readable(second.changes)
    assert second.try_lock()
    second.close()
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_file_in_place_of_another_is_the_one_that_is_locked(path: str) -> None:
    early = LockFile(path)
    os.rename(path, path + " before")
    late = LockFile(path)
    assert late.try_lock()
    assert not early.try_lock()
    late.write(b"a record")
    assert early.read() == b"a record"
    late.close()
    assert early.try_lock()
    early.close()


def test_a_child_does_not_hold_the_lock(path: str) -> None:
    first, second = LockFile(path), LockFile(path)
    assert first.try_lock()
    ready, told = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.write(told, b"1")
        signal.pause()
    assert os.read(ready, 1) == b"1"
    command = [sys.executable, "-c", "print(flush=True); import signal; signal.pause()"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, close_fds=False)
    assert started.stdout is not None
    started.stdout.readline()
    try:
        first.close()
        assert second.try_lock()
    finally:
        second.close()
        for pid in (forked, started.pid):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(forked, 0)
        started.communicate()
        os.close(ready)
        os.close(told)


def test_a_file_that_others_may_write_is_refused(path: str) -> None:
    LockFile(path).close()
    os.chmod(path, 0o660)
    with pytest.raises(gpuwm.Invalid, match="has mode 660, this engine runs as user"):
        LockFile(path)


def test_what_is_no_file_is_refused(path: str, tmp_path: pathlib.Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(gpuwm.Invalid, match="is no regular file"):
        LockFile(path)
    with pytest.raises(gpuwm.Invalid, match="can't be opened: Is a directory"):
        LockFile(str(tmp_path))
    os.symlink(path, path + "2")
    with pytest.raises(gpuwm.Invalid, match="can't be opened: Too many levels"):
        LockFile(path + "2")


def test_a_file_system_without_locks_is_told(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "")

    file = LockFile(path)
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(gpuwm.Unsupported, match="can't be locked: No locks available"):
        file.try_lock()
    file.close()


@pytest.mark.parametrize("call", ["inotify_init1", "inotify_add_watch"])
def test_a_kernel_without_inotify_is_told(
    path: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: Any) -> int:
        ctypes.set_errno(errno.EMFILE)
        return -1

    gc.collect()  # what earlier tests left
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(lockfile._libc, call, fail)
    with pytest.raises(gpuwm.Unsupported, match="inotify.*Too many open files.*raise the limits"):
        LockFile(path)
    assert os.listdir("/proc/self/fd") == before


# ---- records -----------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written() -> None:
    left = Process("rank 0", 7, 1)
    record = records.record_of([SERVER, CORE], "active", [left])
    assert record.holders == [CORE, left]
    assert records.parse(record.encode()) == record
    record.check_visible("lock")
    assert not record.is_of_another_boot()
    assert record.server == SERVER


def changed(**changes: Any) -> bytes:
    return json.dumps({**records.record_of([SERVER, CORE], "active").plain(), **changes}).encode()


def rank(**changes: Any) -> dict[str, Any]:
    return {"role": "rank 0", "pid": 5, "started": 5, **changes}


@pytest.mark.parametrize(
    "content",
    [
        changed()[:-1],
        changed(format=2),
        changed(processes=[]),
        changed(processes=[rank()]),
        changed(processes=[rank(role=API_SERVER)] * 2),
        changed(processes=[rank(role=API_SERVER), rank(pid=-1)]),
        changed(processes=[rank(role=API_SERVER), rank(pid=0)]),
        changed(processes=[rank(role=API_SERVER), rank(pid=1 << 70)]),
        changed(processes=[rank(role=API_SERVER), rank(pid=True)]),
        changed(processes=[rank(role=API_SERVER), rank(started="1")]),
        changed(processes=[rank(role=API_SERVER), 7]),
        changed(before=None),
        changed(before=[rank(pid=0)]),
        changed(place=None),
        changed(since=None),
        changed(state=7),
        b"[" * 100_000,
    ],
)
def test_what_is_no_record(content: bytes) -> None:
    assert records.parse(content) is None


# ---- processes ---------------------------------------------------------------------------------


def test_a_process_is_watched_until_it_ends(sleeper: Process) -> None:
    with Watch([sleeper]) as watch:
        assert watch.living == [sleeper]
        assert watch.kill([sleeper]) == [sleeper]
        watch.wait(30)
        assert watch.gone == [sleeper]
        assert watch.kill([sleeper]) == []


def test_a_stopped_process_is_killed(sleeper: Process) -> None:
    stop(sleeper.pid)
    with Watch([sleeper]) as watch:
        assert watch.stopped() == [sleeper]
        watch.kill([sleeper])
        watch.wait(30)
        assert watch.gone == [sleeper]


def test_another_process_of_that_number_is_none_of_ours(sleeper: Process) -> None:
    other = Process("rank 0", sleeper.pid, sleeper.started - 1)
    with Watch([other]) as watch:
        assert watch.gone == [other]
        assert watch.kill([other]) == []
    assert processes.stat_of(sleeper.pid) is not None


def test_a_process_that_the_kernel_hides_counts_as_alive(
    sleeper: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "stat_of", lambda pid: None)
    with Watch([sleeper]) as watch:
        assert watch.living == [sleeper]


def test_a_kernel_without_pidfds_is_told(sleeper: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pid: int) -> int:
        raise OSError(errno.ENOSYS, "")

    monkeypatch.setattr(os, "pidfd_open", fail)
    with pytest.raises(gpuwm.Unsupported, match=r"rank 0 \(pid \d+\) can't be watched.*Linux 5.4"):
        Watch([sleeper])


def test_a_process_of_another_user_is_told(
    sleeper: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", fail)
    with Watch([sleeper]) as watch, pytest.raises(gpuwm.Refused, match="as the same user"):
        watch.kill([sleeper])


def answer(number: int, pid: int, *parents: Process) -> dict[str, Any]:
    above = [[each.pid, each.started] for each in parents]
    return {"rank": number, "pid": pid, "started": 1002, "parents": above}


def test_the_engine_core_stands_between_the_ranks_and_the_api_server() -> None:
    shell = Process("shell", 2, 1)
    found = processes.of_ranks(
        SERVER, [answer(0, 12, CORE, SERVER, shell), answer(1, 13, CORE, SERVER, shell)]
    )
    assert found == [CORE, Process("rank 0", 12, 1002), Process("rank 1", 13, 1002)]
    assert processes.of_ranks(SERVER, [answer(0, 11, SERVER, shell)]) == [
        Process("rank 0", 11, 1002)
    ]


def test_a_rank_that_is_no_descendant_is_told() -> None:
    elsewhere = Process("another", SERVER.pid, SERVER.started + 1)
    with pytest.raises(gpuwm.Unsupported, match=r"rank 0 \(pid 12\) was not started by the API"):
        processes.of_ranks(SERVER, [answer(0, 12, CORE, elsewhere)])


def test_a_number_that_is_a_threads_by_now() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        reused = Process("rank 0", thread.native_id, 1)
        with Watch([reused]) as watch:
            assert watch.gone == [reused]
    finally:
        ends.set()
        thread.join()


def test_a_shorter_record_leaves_nothing_of_the_longer_one(path: str) -> None:
    file = LockFile(path)
    long = records.record_of([SERVER, CORE], "taking over", [CORE] * 3)
    short = records.record_of([SERVER], "active")
    for record in (long, short, long):
        file.write(record.encode())
        assert records.parse(file.read()) == record
    file.close()


def test_a_time_that_is_no_number_of_a_float(path: str) -> None:
    record = records.record_of([SERVER], "active")
    text = record.encode().replace(str(record.since).encode(), b"1" + b"0" * 400)
    assert records.parse(text) is None
