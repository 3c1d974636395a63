"""vLLM's sleep mode with weights that are parked."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Daemon, eventually, running

import gpuwm
from tests_engines.engines import Engine
from tests_engines.starting import Start

from .conftest import NEW

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn

SLEEPS = {"model_config.enable_sleep_mode": True}
AWAKE = {"parked": False, "pools": [0x100000, 0x200000], "adapter": b"pool" * 16}
ASLEEP = {"parked": True, "pools": [], "adapter": b""}
GIB = 1 << 30


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running("--budget", "host=100G", keeper=True) as started:
        yield started


def started(start: Start, ref: str, kind: str = "dense", **more: Any) -> Engine:
    extra = {"ref": ref, **more}
    engine = start(kind, load_format="gpuwm", extra=extra, changed=SLEEPS)
    engine.loaded()
    return engine


def state(engine: Engine) -> dict[str, Any]:
    found: dict[str, Any] = engine.ask("sleep_state")
    return {name: found[name] for name in ("parked", "pools", "adapter")}


def call(engine: Engine, method: str, *arguments: Any) -> str:
    said: str = engine.ask("sleep_mode", method, *arguments)
    return said


@pytest.mark.parametrize("level", [1, 2])
def test_a_sleep_parks_and_a_wake_has_every_bit_again(
    daemon: Daemon, start: Start, level: int
) -> None:
    engine = started(start, f"level{level}@v1")
    before = engine.ask("describe")
    for _ in range(2):
        assert call(engine, "sleep", level) == ""
        assert state(engine) == ASLEEP
        assert daemon.leases(f"level{level}@v1") == 1
        assert call(engine, "sleep", level) == ""  # changes nothing
        assert state(engine) == ASLEEP
        assert call(engine, "wake_up") == ""
        assert engine.ask("sleep_state")["backend"] == "gpuwm.vllm.sleep_mode"
        assert call(engine, "wake_up") == ""
        assert state(engine) == AWAKE
        assert engine.ask("describe") == before


def rooms(daemon: Daemon, ref: str) -> list[int]:
    """What gpuwmd counts for the leases on a version, besides the version."""
    leases = [lease for each in daemon.admin.clients() for lease in each["leases"]]
    return [each.get("room", 0) for each in leases if f"{each['model']}@{each['tag']}" == ref]


def test_pools_are_room_while_the_engine_is_awake(daemon: Daemon, start: Start) -> None:
    engine = started(start, "room@v1")
    assert call(engine, "sleep") == ""
    assert rooms(daemon, "room@v1") == [0]
    assert call(engine, "wake_up") == ""
    assert rooms(daemon, "room@v1") == [40 * GIB + 64]
    assert call(engine, "sleep") == ""
    others = [started(start, f"other{number}@v1") for number in (1, 2)]
    for other in others:
        assert call(other, "sleep") == ""
    assert [call(each, "wake_up") for each in (engine, others[0])] == ["", ""]
    others[1].tell("sleep_mode", "wake_up")  # waits in turn
    assert call(engine, "sleep") == ""
    assert others[1].answer() == ""
    assert state(others[1]) == AWAKE


def test_room_that_gpuwmd_does_not_have_is_told(daemon: Daemon, start: Start) -> None:
    with running("--budget", "host=10G"):
        engine = started(start, "large@v1")
        assert call(engine, "sleep") == ""
        assert "gpuwmd does not count the 40.00 GiB" in engine.text()
        assert call(engine, "wake_up") == ""
        assert state(engine) == AWAKE


def test_versions_that_only_sleeping_engines_hold_do_not_count(start: Start) -> None:
    with running() as daemon:
        one, other = (started(start, f"counts{number}@v1") for number in (1, 2))
        both = one.ask("version_bytes")
        assert call(other, "sleep") == ""
        assert one.ask("version_bytes") == both / 2
        third = started(start, "counts2@v1")
        assert one.ask("version_bytes") == both
        third.kill()
        eventually(lambda: daemon.leases("counts2@v1") == 1)
        assert one.ask("version_bytes") == both / 2


def test_tags_wake_one_after_the_other(daemon: Daemon, start: Start) -> None:
    engine = started(start, "tags@v1")
    assert call(engine, "sleep") == ""
    assert call(engine, "wake_up", ["weights"]) == ""
    assert state(engine) == {**AWAKE, "pools": [0x200000]}
    assert call(engine, "execute_dummy_batch") == (
        "Busy: this engine sleeps, and got a step: wake it up first"
    )
    assert call(engine, "wake_up", ["weights"]) == ""
    assert call(engine, "wake_up", None) == ""
    assert state(engine) == AWAKE
    assert engine.ask("sleep_state")["state"] == "RUNNING"


def test_another_engine_may_wake_in_the_middle_of_a_sleep(daemon: Daemon, start: Start) -> None:
    engine = started(start, "beside@v1")
    engine.ask("grow_beside", 60 * GIB)
    assert call(engine, "sleep") == ""
    assert state(engine) == ASLEEP
    assert "Sleep mode freed 40.0 GiB memory" in engine.text()


def test_a_sleep_that_fails_is_undone(daemon: Daemon, start: Start) -> None:
    """vLLM's pools fail, or gpuwm can't park."""
    engine = started(start, "undone@v1")
    before = engine.ask("describe")
    engine.ask("gpu", {"errors": {"backup": 1}})
    said = call(engine, "sleep")
    assert "vLLM's memory pools could not sleep: RuntimeError: CUDA Error" in said
    assert state(engine) == AWAKE
    engine.ask("refuse_park", 1)
    assert call(engine, "sleep") == "Busy: as the test wants it"
    assert state(engine) == AWAKE
    assert engine.ask("describe") == before
    assert call(engine, "sleep") == ""


def test_an_engine_that_can_t_go_back_says_so(daemon: Daemon, start: Start) -> None:
    engine = started(start, "torn@v1")
    engine.ask("gpu", {"errors": {"backup": 1, "map": 1}})
    said = call(engine, "sleep")
    assert said.startswith("Lost: this engine could not sleep: vLLM's memory pools could not sleep")
    assert "and it could not go back: CUDA Error: out of memory (map): it can't serve" in said


def test_a_wake_that_fails_sleeps_on_and_is_repeated(daemon: Daemon, start: Start) -> None:
    engine = started(start, "repeated@v1")
    before = engine.ask("describe")
    assert call(engine, "sleep") == ""
    for error in ("map", "backup"):
        engine.ask("gpu", {"errors": {error: 1}})
        assert "vLLM's memory pools could not wake: RuntimeError" in call(engine, "wake_up")
        assert state(engine) == ASLEEP
    engine.ask("fail_after_wake", 1)
    assert call(engine, "wake_up") == "RuntimeError: vLLM failed"
    assert state(engine) == ASLEEP
    assert call(engine, "wake_up") == ""
    assert state(engine) == AWAKE
    assert engine.ask("describe") == before


def saved(daemon: Daemon, ref: str) -> None:
    """The version has files, so that it can leave."""
    folder = daemon.models / ref.replace("@", "-")
    with gpuwm.attach(ref) as mapping:
        mapping.save(folder)
    assert [job.wait() for job in daemon.admin.describe(ref, folder)] == [True]


def test_a_version_that_left_meanwhile_comes_back(daemon: Daemon, start: Start) -> None:
    engine = started(start, "left@v1")
    before = engine.ask("describe")
    saved(daemon, "left@v1")
    for _ in range(2):
        assert call(engine, "sleep") == ""
        assert [job.wait() for job in daemon.admin.demote("left@v1", "files")] == [True]
        assert call(engine, "wake_up") == ""
        assert state(engine) == AWAKE
        assert engine.ask("describe") == before


def test_pools_are_mapped_while_weights_come_and_again_after_that(
    daemon: Daemon, start: Start
) -> None:
    """The GPU's memory may be that of versions which leave: then the pools wait."""
    engine = started(start, "coming@v1")
    saved(daemon, "coming@v1")
    assert call(engine, "sleep") == ""
    assert [job.wait() for job in daemon.admin.demote("coming@v1", "files")] == [True]
    engine.ask("gpu", {"errors": {"map": 1}})
    assert call(engine, "wake_up") == ""
    assert state(engine) == AWAKE


def test_a_version_that_was_dropped_is_named_and_the_engine_sleeps_on(
    daemon: Daemon, start: Start
) -> None:
    engine = started(start, "dropped@v1")
    assert call(engine, "sleep") == ""
    daemon.admin.remove_alias("dropped", "current")
    daemon.admin.retire("dropped@v1", force=True)
    said = call(engine, "wake_up")
    assert said.partition(":")[0] in ("Lost", "NotFound", "Revoked"), said
    assert state(engine)["pools"] == []


def test_gpuwmd_is_killed_while_the_engine_sleeps(daemon: Daemon, start: Start) -> None:
    engine = started(start, "killed@v1")
    before = engine.ask("describe")
    assert call(engine, "sleep") == ""
    daemon.restart()
    eventually(lambda: daemon.leases("killed@v1") == 1)
    assert call(engine, "wake_up") == ""
    assert state(engine) == AWAKE
    assert engine.ask("describe") == before


def test_a_switch_that_has_not_ended_keeps_the_engine_awake(daemon: Daemon, start: Start) -> None:
    engine = started(start, "switched@v1")
    assert "error" not in engine.ask("gpuwm_prepare", "token", "switched@v1", "no", "no")
    assert call(engine, "sleep").startswith("Busy: another switch of this engine began")
    assert state(engine) == AWAKE
    engine.ask("gpuwm_settle", "token", "old")
    assert call(engine, "sleep") == ""


def test_an_engine_that_fell_back_sleeps_as_vllms(
    daemon: Daemon, start: Start, tmp_path: pathlib.Path
) -> None:
    away = {"GPUWM_SOCKET": str(tmp_path / "nobody.sock")}
    extra = {"ref": "m@v1", "fallback": "auto"}
    engine = start("dense", load_format="gpuwm", extra=extra, environment=away, changed=SLEEPS)
    assert call(engine, "sleep") == ""
    assert engine.ask("gpu") == ["unmap 100000", "unmap 200000"]
    assert call(engine, "wake_up") == ""


def test_two_ranks_go_back_together(daemon: Daemon, start: Start) -> None:
    both = [
        start(
            "dense",
            rank=rank,
            meet="sleep-ranks",
            tensor_parallel_size=2,
            load_format="gpuwm",
            extra={"ref": "ranks@v1"},
            changed=SLEEPS,
        )
        for rank in (0, 1)
    ]
    for engine in both:
        engine.loaded()

    def all_call(method: str) -> list[str]:
        for engine in both:
            engine.tell("sleep_mode", method)
        return [engine.answer() for engine in both]

    for failing in both:
        failing.ask("gpu", {"errors": {"backup": 1}})
        first, last = all_call("sleep")
        assert first == ""  # only the last rank tells
        assert "could not sleep" in last
        assert [state(engine) for engine in both] == [AWAKE, AWAKE]
        assert all_call("sleep") == ["", ""]
        failing.ask("gpu", {"errors": {"map": 1}})
        first, last = all_call("wake_up")
        assert first == ""
        assert "could not wake" in last
        assert [state(engine) for engine in both] == [ASLEEP, ASLEEP]
        assert all_call("wake_up") == ["", ""]
        assert [state(engine) for engine in both] == [AWAKE, AWAKE]


def test_two_engines_of_two_ranks_do_not_wait_for_each_other(daemon: Daemon, start: Start) -> None:
    """The budget has room for the pools of one of them."""
    engines = [
        [
            start(
                "dense",
                rank=rank,
                meet=f"turns-{number}",
                tensor_parallel_size=2,
                load_format="gpuwm",
                extra={"ref": "turns@v1"},
                changed=SLEEPS,
            )
            for rank in (0, 1)
        ]
        for number in (0, 1)
    ]

    def all_call(ranks: list[Engine], method: str) -> list[str]:
        for engine in ranks:
            engine.tell("sleep_mode", method)
        return [engine.answer() for engine in ranks]

    for ranks in engines:
        for engine in ranks:
            engine.loaded()
        assert all_call(ranks, "sleep") == ["", ""]
    first, second = engines

    def is_awake(ranks: list[Engine]) -> bool:
        pids = {engine.pid for engine in ranks}
        return all(
            not lease.get("parked", False)
            for client in daemon.admin.clients()
            if client["pid"] in pids
            for lease in client["leases"]
        )

    # One by one, each engine would have what the other one needs.
    for engine in (first[0], second[1], second[0], first[1]):
        engine.tell("sleep_mode", "wake_up")
    eventually(lambda: is_awake(first) or is_awake(second))
    awake, waits = (first, second) if is_awake(first) else (second, first)
    assert not is_awake(waits)
    assert [engine.answer() for engine in awake] == ["", ""]
    assert all_call(awake, "sleep") == ["", ""]
    assert [engine.answer() for engine in waits] == ["", ""]
    assert [state(engine) for engine in waits] == [AWAKE, AWAKE]


def test_without_sleep_mode_and_in_a_standby_group_the_reason_is_named(
    daemon: Daemon, start: Start
) -> None:
    engine = start("dense", load_format="gpuwm", extra={"ref": "neither@v1"})
    assert "start it with --enable-sleep-mode" in call(engine, "sleep")
    engine.ask("be_a_standby")
    assert "an engine of a standby group does not sleep" in call(engine, "sleep")


NEEDS = {"model_config.sleep_mode_backend": "gpuwm"}


def test_the_backend_needs_the_worker(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "worker@v1"}
    failed = start("dense", load_format="gpuwm", extra=extra, changed={**SLEEPS, **NEEDS}).failed()
    assert "--sleep-mode-backend gpuwm needs gpuwm.vllm.Worker" in failed.text


@pytest.mark.skipif(not NEW, reason="vLLM 0.25 leaves graphs where they are")
def test_graphs_that_sleep_need_vllms_name(daemon: Daemon, start: Start) -> None:
    from types import SimpleNamespace

    from gpuwm.vllm import refusals

    config = SimpleNamespace(
        enable_sleep_mode=True, sleep_mode_backend="gpuwm", sleep_mode_offload_cudagraph=True
    )
    with pytest.raises(gpuwm.Unsupported, match="--sleep-mode-offload-cudagraph has no effect"):
        refusals.check_sleep(config, worker_counts=True)


def test_vllm_knows_the_backend_and_a_vllm_that_lacks_something_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.device_allocator import cumem

    import gpuwm.vllm
    from gpuwm.vllm import sleep_mode

    gpuwm.vllm.register()
    gpuwm.vllm.register()
    sleep_mode.check()
    monkeypatch.setattr(cumem.CuMemAllocator, "sleep", lambda self, offload_tags=None: None)
    with pytest.raises(gpuwm.Unsupported, match="sleep does not use self.pointer_to_data"):
        sleep_mode.check()
