"""The active engine of a group ends by command."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
from typing import Any

import pytest
from conftest import eventually
from standing import is_alive, stop
from test_vllm_standby import Start, lock, pair, processes_of, serves, stale, standby, start

import gpuwm
from gpuwm.vllm import __main__ as commands
from gpuwm.vllm import takeover

__all__ = ["lock", "start"]  # fixtures


def test_the_active_engine_ends_in_order(
    start: Start, lock: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    active, other = pair(start)
    assert commands.main(["takeover", "--lock", str(lock)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"API server (pid {active.pid}) got SIGTERM"
    assert said[1].startswith(f"API server (pid {other.pid}) is active now, after ")
    assert len(said) == 2
    assert active.process.wait(30) == 0


def test_it_is_killed_at_once_without_a_drain(start: Start, lock: pathlib.Path) -> None:
    active, other = pair(start)
    said: list[str] = []
    assert takeover.takeover(str(lock), 0, said.append).server.pid == other.pid
    assert said[0].startswith(f"killed API server (pid {active.pid}), engine core (pid ")
    assert active.process.wait(30) == -signal.SIGKILL


def test_it_is_killed_when_the_drain_is_over(start: Start, lock: pathlib.Path) -> None:
    active, other = pair(start)

    def ask() -> None:
        with pytest.raises(OSError):
            active.get("/slow")  # which keeps the API server from its end

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: active.get("/running")[2]["running"] == 2)
    said: list[str] = []
    takeover.takeover(str(lock), 0.2, said.append)
    assert said[1] == f"killed API server (pid {active.pid})"
    asking.join()
    other.await_state("active")


def test_a_stopped_engine_is_killed(start: Start, lock: pathlib.Path) -> None:
    active, other = pair(start)
    pids = processes_of(active)
    stop(*pids)
    said: list[str] = []
    takeover.takeover(str(lock), say=said.append)
    assert "can't end in order: stopped (SIGSTOP)" in said[0]
    assert not any(map(is_alive, pids))
    other.await_state("active")


def test_a_lock_that_is_not_there_is_not_made(tmp_path: pathlib.Path) -> None:
    with pytest.raises(gpuwm.NotFound, match="there is no lock"):
        takeover.takeover(str(tmp_path / "lock"))
    assert not (tmp_path / "lock").exists()


def test_there_is_nothing_to_end(
    start: Start, lock: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = start()
    only.await_state("active")
    only.kill()
    eventually(lambda: not any(map(is_alive, [only.pid])))
    assert commands.main(["takeover", "--lock", str(lock)]) == 1
    assert "no engine of " in capsys.readouterr().err
    lock.write_bytes(b"garbage")
    with pytest.raises(gpuwm.NotFound):
        takeover.takeover(str(lock))


def test_nobody_takes_over(
    start: Start, lock: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "TAKEN_S", 0.1)
    only = start()
    only.await_state("active")
    with pytest.raises(gpuwm.TimedOut, match="no other engine of .* took over: start a standby"):
        takeover.takeover(str(lock), 0)
    assert only.process.wait(30) == -signal.SIGKILL


def test_a_process_that_does_not_end(
    start: Start, lock: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "GONE_S", 0.1)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    active, other = pair(start)
    with pytest.raises(gpuwm.TimedOut, match=rf"API server \(pid {active.pid}\), engine core"):
        takeover.takeover(str(lock), 0)
    assert other.report()["state"] == "standby"


def test_an_engine_in_another_namespace_is_left_alone(start: Start, lock: pathlib.Path) -> None:
    active = start(ranks=1)
    serves(active)
    record = stale(lock)
    stale(lock, place={**record["place"], "namespace": 1})
    with pytest.raises(gpuwm.Unsupported, match="pid namespace 1"):
        takeover.takeover(str(lock))
    assert active.get("/health")[0] == 200


def test_a_standby_that_is_still_to_take_its_memory_is_waited_for(
    start: Start, lock: pathlib.Path
) -> None:
    active = start()
    active.await_state("active")
    second = standby(start, active, occupy="stops")
    found: list[Any] = []
    ending = threading.Thread(target=lambda: found.append(takeover.takeover(str(lock), 0)))
    ending.start()
    second.await_state("taking over")
    pid = second.pid_of("rank 0")
    assert not found
    third = start()
    third.await_state("standby")
    os.kill(pid, signal.SIGKILL)
    third.await_state("active")
    ending.join(30)
    assert found[0].server.pid == third.pid


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "soon"])
def test_a_drain_that_can_not_be_meant(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.main(["takeover", "--lock", "lock", "--drain", text])
    assert "invalid" in capsys.readouterr().err
