"""An engine's part in its group, step by step, without an engine: who waits for what, and who is
killed."""

from __future__ import annotations

import logging
import os
import pathlib
import signal
import threading
from typing import Any

import pytest
from conftest import eventually
from test_vllm_lockfile import CORE, SERVER, path, sleeper

import gpuwm
from gpuwm.vllm import processes, standby
from gpuwm.vllm import record as records
from gpuwm.vllm.lockfile import LockFile
from gpuwm.vllm.processes import API_SERVER, Process, Watch

__all__ = ["path", "sleeper"]  # fixtures


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
    group.join()
    joining = threading.Thread(target=group.wait_until_gone, daemon=True)
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
    group.wait_until_gone()
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
