"""Groups of engines of which one is active: what kills it, and who takes over. The engines are
processes that pretend to serve: see standing.py."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import eventually
from standing import Engine, Job, is_alive, stop

from gpuwm.vllm import record as records

Start = Callable[..., Engine]
ROLES = ["API server", "engine core", "rank 0", "rank 1"]
# What the goal of 0.5 s has for all but the engine's own first step, on processors that others use.
TAKEOVER_S = 5.0


@pytest.fixture
def lock(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "lock"


@pytest.fixture
def start(tmp_path: pathlib.Path, lock: pathlib.Path) -> Iterator[Start]:
    """start(occupy="fails", …) starts an engine of the group; its arguments are those of Job."""
    memory = tmp_path / "memory"
    memory.mkdir()
    started: list[Engine] = []

    def engine(**arguments: Any) -> Engine:
        job = Job(str(lock), str(memory), **arguments)
        started.append(Engine(job, tmp_path / f"log{len(started)}"))
        return started[-1]

    yield engine
    for each in started:
        each.kill()
        print(f"--- engine {each.pid}\n{each.text()}")  # shown if the test failed


def pair(start: Start, **arguments: Any) -> tuple[Engine, Engine]:
    """The active engine, and one that stands by and watches it."""
    active = start(**arguments)
    active.await_state("active")
    return active, standby(start, active, **arguments)


def standby(start: Start, active: Engine, **arguments: Any) -> Engine:
    found = start(**arguments)
    eventually(lambda: (found.report()["active"] or {}).get("state") == "active")
    record = found.await_state("standby")["active"]
    assert record["processes"][0]["pid"] == active.pid
    return found


def processes_of(engine: Engine) -> list[int]:
    return [each["pid"] for each in engine.report()["active"]["processes"]]


def serves(engine: Engine) -> None:
    """Returns when the engine is active and has written the record that it keeps."""
    engine.await_state("active")
    eventually(lambda: engine.report()["active"]["state"] == "active")


def stale(lock: pathlib.Path, **changes: Any) -> dict[str, Any]:
    """Changes the record that is in the lock; it as it was."""
    record: dict[str, Any] = json.loads(lock.read_text())
    lock.write_text(json.dumps({**record, **changes}))
    return record


@pytest.mark.parametrize("role", ROLES)
def test_whichever_process_is_killed_the_standby_takes_over(start: Start, role: str) -> None:
    active, other = pair(start)
    holders = processes_of(active)[1:]
    killed_at = time.monotonic()
    os.kill(active.pid_of(role), signal.SIGKILL)
    report = other.await_state("active")
    assert not any(map(is_alive, holders))
    moments = sorted(report["moments"], key=report["moments"].get)
    assert moments[0] == "died"
    assert sorted(moments[1:-1]) == ["gone", "locked", "occupied"]
    assert moments[-1] == "opened"
    assert list(report["seconds"]) == moments[1:]
    assert killed_at < report["moments"]["died"]
    assert report["moments"]["opened"] - killed_at < TAKEOVER_S
    assert report["active"]["processes"][0]["pid"] == other.pid
    assert other.get("/v1/models")[0] == 200


@pytest.mark.parametrize("role", ["API server", "engine core"])
def test_an_engine_whose_core_is_its_only_rank(start: Start, role: str) -> None:
    active, other = pair(start, ranks=1)
    roles = [each["role"] for each in active.report()["active"]["processes"]]
    assert roles == ["API server", "rank 0"]
    os.kill(active.pid_of("rank 0" if role == "engine core" else role), signal.SIGKILL)
    other.await_state("active")


def test_an_engine_core_that_outlives_its_api_server_is_killed(start: Start) -> None:
    active, other = pair(start, lifeline=False)
    holders = processes_of(active)[1:]
    os.kill(active.pid, signal.SIGKILL)
    other.await_state("active")
    assert not any(map(is_alive, holders))


def test_orphans_of_an_engine_that_nobody_watched_are_killed(start: Start) -> None:
    active = start(lifeline=False)
    active.await_state("active")
    holders = processes_of(active)[1:]
    active.process.kill()
    active.process.wait()
    assert all(map(is_alive, holders))
    start().await_state("active")
    assert not any(map(is_alive, holders))


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_engine_ends_with_its_api_server(start: Start, ranks: int) -> None:
    only = start(ranks=ranks)
    only.await_state("active")
    holders = processes_of(only)[1:]
    only.process.kill()
    eventually(lambda: not any(map(is_alive, holders)))


def test_a_standby_ends_with_its_api_server(start: Start, lock: pathlib.Path) -> None:
    active, other = pair(start)
    children = pathlib.Path(f"/proc/{other.pid}/task/{other.pid}/children")
    (core,) = map(int, children.read_text().split())
    other.process.kill()
    eventually(lambda: not is_alive(core))
    assert active.get("/health")[0] == 200


def test_one_of_two_standbys_takes_over_each_time(start: Start) -> None:
    """20 rounds: the engine that was active is killed, and a new one stands by."""
    active, other = pair(start)
    engines = [active, other, standby(start, active)]
    for number in range(20):
        active = next(each for each in engines if each.report()["state"] == "active")
        engines.remove(active)
        role = ROLES[number % len(ROLES)]
        os.kill(active.pid_of(role), signal.SIGKILL)
        eventually(lambda: [each.report()["state"] for each in engines].count("active"))
        states = [each.report()["state"] for each in engines]
        assert sorted(states) == ["active", "standby"]
        engines.append(standby(start, engines[states.index("active")]))


def test_a_stopped_engine_is_left_alone(start: Start, lock: pathlib.Path) -> None:
    active, other = pair(start)
    pids = processes_of(active)
    stop(*pids)
    record = stale(lock, since=1.0)  # lets the standby look
    eventually(lambda: other.report()["active"]["since"] == 1.0)
    assert record["processes"] == other.report()["active"]["processes"]
    assert other.report()["state"] == "standby"
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert active.get("/health")[0] == 200


def test_a_stopped_api_server_does_not_keep_the_lock(start: Start) -> None:
    active, other = pair(start)
    core = active.pid_of("engine core")
    stop(active.pid)
    os.kill(core, signal.SIGKILL)
    other.await_state("active")
    assert active.process.wait(10) == -signal.SIGKILL


def test_answers_that_are_on_their_way_are_sent(start: Start, tmp_path: pathlib.Path) -> None:
    active, other = pair(start)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(active.get("/slow")))
    asking.start()
    eventually(lambda: active.get("/running")[2]["running"] == 2)
    active.process.terminate()
    other.await_state("active")
    assert active.report()["state"] == "ended"
    assert active.get("/health")[0] == 503
    (tmp_path / "memory" / "go").touch()
    asking.join()
    assert answers[0][0] == 200
    assert active.process.wait(30) == 0


def test_a_process_that_dies_before_its_memory_is_taken(start: Start) -> None:
    active = start()
    active.await_state("active")
    second = standby(start, active, occupy="stops")
    third = standby(start, active)
    stop(third.pid)
    active.process.kill()
    second.await_state("taking over")
    record = second.report()["active"]
    assert record["state"] == "taking over"
    third.process.send_signal(signal.SIGCONT)
    os.kill(second.pid_of("rank 1"), signal.SIGKILL)
    third.await_state("active")


def test_an_engine_that_gets_no_memory_ends(start: Start) -> None:
    active = start()
    active.await_state("active")
    second = standby(start, active, occupy="fails")
    active.process.kill()
    assert second.process.wait(30) == 1
    assert "rank 0 could not gpuwm_occupy: NoRoom: no memory: free some" in second.text()
    start().await_state("active")


def test_memory_that_comes_back_late_is_taken(start: Start) -> None:
    active = start()
    active.await_state("active")
    second = standby(start, active, occupy="fails once")
    active.process.kill()
    second.await_state("active")
    assert "rank 0 could not" not in second.text()


def test_an_engine_whose_ranks_can_not_occupy_ends(start: Start) -> None:
    only = start(occupy="raises")
    assert only.process.wait(30) == 1
    assert "the ranks could not gpuwm_occupy" in only.text()
    assert "--worker-cls gpuwm.vllm.Worker" in only.text()


def test_a_standby_whose_core_died_does_not_take_over(start: Start) -> None:
    active, other = pair(start)
    children = pathlib.Path(f"/proc/{other.pid}/task/{other.pid}/children")
    (core,) = map(int, children.read_text().split())
    os.kill(core, signal.SIGKILL)
    other.await_state("ended")
    assert "ended while it stood by" in other.text()
    third = standby(start, active)
    active.process.kill()
    third.await_state("active")
    assert other.report()["state"] == "ended"


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"[]", b'{"processes": [{"pid": "x"}]}', b"\xff" * 100, b"9" * 9999],
)
def test_a_file_that_is_no_record_is_no_hindrance(
    start: Start, lock: pathlib.Path, content: bytes
) -> None:
    lock.write_bytes(content)
    lock.chmod(0o600)
    start(ranks=1).await_state("active")
    assert records.parse(lock.read_bytes()) is not None


def test_a_standby_waits_where_the_lock_is_held_and_no_record(
    start: Start, lock: pathlib.Path
) -> None:
    with open(lock, "wb") as file:
        lock.chmod(0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b"garbage")
        file.flush()
        engine = start(ranks=1)
        eventually(lambda: "no record of an engine" in engine.text())
        assert engine.await_state("standby")["active"] is None
    engine.await_state("active")


def test_a_lock_that_a_crash_left_is_free(start: Start, lock: pathlib.Path) -> None:
    first = start()
    first.await_state("active")
    first.kill()
    assert records.parse(lock.read_bytes()) is not None
    start().await_state("active")


@pytest.mark.parametrize("held", [False, True])
def test_a_number_that_is_another_process_now(start: Start, lock: pathlib.Path, held: bool) -> None:
    """This test's own process has the number that the record names: it must not be killed."""
    first = start(ranks=1)
    first.await_state("active")
    first.kill()
    server = {"role": "API server", "pid": os.getpid(), "started": 1}
    rank = {"role": "rank 0", "pid": os.getpid(), "started": 1}
    stale(lock, processes=[server, rank])
    with open(lock, "r+b") as file:
        if held:
            fcntl.flock(file, fcntl.LOCK_EX)
        second = start(ranks=1)
        if held:
            second.await_state("standby")
    second.await_state("active")


def test_a_record_of_another_boot_names_nobody(start: Start, lock: pathlib.Path) -> None:
    first = start(ranks=1, lifeline=False)
    first.await_state("active")
    holders = processes_of(first)[1:]
    first.process.kill()
    first.process.wait()
    record = stale(lock)
    stale(lock, place={**record["place"], "boot": "another"})
    second = start(ranks=1)
    assert second.process.wait(30) == 1  # as the memory is not free
    assert all(map(is_alive, holders))
    assert "which this engine can't see" not in second.text()


def test_a_record_of_another_boot_does_not_say_who_has_the_lock(
    start: Start, lock: pathlib.Path
) -> None:
    first = start(ranks=1)
    first.await_state("active")
    first.kill()
    record = stale(lock)
    stale(lock, place={**record["place"], "boot": "another"})
    with open(lock, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = start(ranks=1)
        eventually(lambda: "no record of an engine" in second.text())
        assert second.report()["active"] is None
    second.await_state("active")


def test_an_active_engine_in_another_namespace_is_an_error(
    start: Start, lock: pathlib.Path
) -> None:
    first = start(ranks=1)
    serves(first)
    record = stale(lock)
    stale(lock, place={**record["place"], "namespace": 1})
    second = start(ranks=1)
    assert second.process.wait(30) == 1
    assert "is in pid namespace 1, this engine in" in second.text()
    assert "shareProcessNamespace: true" in second.text()
    assert first.get("/health")[0] == 200


def test_a_free_lock_of_another_namespace_is_taken(start: Start, lock: pathlib.Path) -> None:
    first = start(ranks=1)
    first.await_state("active")
    first.kill()
    record = stale(lock)
    stale(lock, place={**record["place"], "namespace": 1})
    second = start(ranks=1)
    second.await_state("active")
    assert "of pid namespace 1, which this engine can't see" in second.text()


def test_a_file_that_was_removed_is_locked_anew(start: Start, lock: pathlib.Path) -> None:
    active, other = pair(start, lifeline=False)  # nothing ends by itself
    holders = processes_of(active)[1:]
    lock.unlink()
    active.process.kill()
    other.await_state("active")
    assert not any(map(is_alive, holders))
    assert records.parse(lock.read_bytes()) is not None


def test_a_folder_that_is_not_there_ends_the_start(tmp_path: pathlib.Path) -> None:
    engine = Engine(Job(str(tmp_path / "no" / "lock"), str(tmp_path)), tmp_path / "log")
    try:
        assert engine.process.wait(30) == 1
        assert f"needs the folder {tmp_path}/no, which is not there" in engine.text()
    finally:
        engine.kill()
