"""The lock of a group of engines, the record in it, and the processes that the record names."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import logging
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
from conftest import eventually
from standing import stop

import gpuwm
from gpuwm.vllm import lockfile, processes, standby
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
    assert second.read() == b"short"
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


def test_a_process_that_does_not_end_is_told_and_waited_for(
    path: str, sleeper: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The standby's SIGKILL does nothing here, as with a process that is stuck in a driver."""
    gone = Process(API_SERVER, sleeper.pid, 1)
    file = LockFile(path)
    file.write(records.record_of([gone, sleeper], "active").encode())
    file.close()
    monkeypatch.setattr(standby, "GONE_S", 0.01)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    group = standby.Group(path, processes.this(API_SERVER), [])
    joining = threading.Thread(target=group.join, daemon=True)
    with caplog.at_level(logging.ERROR, "vllm.gpuwm"):
        joining.start()
        eventually(lambda: "did not end within" in caplog.text)
    assert f"rank 0 (pid {sleeper.pid}) of the engine before this one" in caplog.text
    assert joining.is_alive()
    os.kill(sleeper.pid, signal.SIGKILL)
    joining.join(30)
    assert not joining.is_alive()
    group.leave()


def test_an_api_server_that_gave_the_lock_back_is_left_alone(path: str, sleeper: Process) -> None:
    server = Process(API_SERVER, sleeper.pid, sleeper.started)
    holder = LockFile(path)
    assert holder.try_lock()
    holder.write(records.record_of([server], "active").encode())
    group = standby.Group(path, processes.this(API_SERVER), [])
    joining = threading.Thread(target=group.join, daemon=True)
    joining.start()
    eventually(lambda: group.active)
    holder.close()
    joining.join(30)
    assert not joining.is_alive()
    with Watch([server]) as watch:
        assert watch.living == [server]
    assert list(group.moments()) == ["died", "locked", "gone"]
    assert list(group.seconds()) == ["locked", "gone"]
    found = records.parse(pathlib.Path(path).read_bytes())
    assert found is not None
    assert found.server.pid == os.getpid()
    group.leave()


def test_an_engine_that_is_dead_does_not_keep_the_lock(path: str) -> None:
    dead = Process("engine core", os.getpid(), 1)
    group = standby.Group(path, processes.this(API_SERVER), [dead])
    with pytest.raises(gpuwm.Lost, match=r"engine core \(pid \d+\) of this engine ended"):
        group.join()
    file = LockFile(path)
    assert file.try_lock()
    assert file.read() == b""
    file.close()


def test_a_record_of_elsewhere_may_be_of_an_engine_before(
    path: str, sleeper: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between an engine's lock and its record the file has the record of another one."""
    monkeypatch.setattr(standby, "LOOK_S", 60.0)
    server = Process(API_SERVER, sleeper.pid, sleeper.started)
    now = records.record_of([server], "active")
    elsewhere = records.Place(now.place.boot, 1)
    before = records.Record("active", 1.0, elsewhere, (SERVER, CORE))
    holder = LockFile(path)
    assert holder.try_lock()
    holder.write(before.encode())
    group = standby.Group(path, processes.this(API_SERVER), [])
    joining = threading.Thread(target=group.join, daemon=True)
    joining.start()
    eventually(lambda: group.active == before)
    holder.write(now.encode())
    eventually(lambda: group.active == now)
    holder.close()
    joining.join(30)
    assert not joining.is_alive()
    group.leave()


def test_all_standbys_leave_an_api_server_that_gave_the_lock_back(
    path: str, sleeper: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two standbys has the lock, and waits for memory for longer than the other one would
    wait for the lock."""
    sent: list[Process] = []

    def send(watch: Watch, which: Any, number: int) -> list[Process]:
        sent.extend(which)
        return list(which)

    monkeypatch.setattr(Watch, "send", send)
    server = processes.this(API_SERVER)
    holder = LockFile(path)
    assert holder.try_lock()
    core = Process("engine core", sleeper.pid, 1)  # which has ended
    before = records.record_of([server, core, sleeper], "active")
    holder.write(before.encode())
    holder.close()
    groups = [standby.Group(path, server, []) for _ in range(2)]
    threads = [threading.Thread(target=group.join, daemon=True) for group in groups]
    for thread in threads:
        thread.start()
    eventually(lambda: all(each.active and each.active.before == (sleeper,) for each in groups))
    assert sent == [sleeper]
    os.kill(sleeper.pid, signal.SIGKILL)
    eventually(lambda: not all(thread.is_alive() for thread in threads))
    for group, thread in zip(groups, threads, strict=True):
        if not thread.is_alive():
            group.leave()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert server not in sent


def test_a_standby_that_waits_for_the_lock_sees_who_has_it(
    path: str, sleeper: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standby, "HANDOVER_S", 60.0)
    me = processes.this(API_SERVER)
    holder = LockFile(path)
    assert holder.try_lock()
    dead = Process("engine core", sleeper.pid, 1)
    holder.write(records.record_of([me, dead], "active").encode())
    group = standby.Group(path, me, [])
    joining = threading.Thread(target=group.join, daemon=True)
    joining.start()
    eventually(lambda: "the active engine has ended" in caplog.text)
    server = Process(API_SERVER, sleeper.pid, sleeper.started)
    after = records.record_of([server], "taking over")
    holder.write(after.encode())
    eventually(lambda: group.active == after)
    holder.close()
    joining.join(30)
    assert not joining.is_alive()
    group.leave()
