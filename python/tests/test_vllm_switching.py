"""Switching an engine, with stand-ins for its ranks: what is called when, and what a failure of
each step leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from switched import (
    NEW,
    OLD,
    RANKS,
    STEPS,
    Asynchronous,
    Engine,
    Offline,
    Server,
    raising,
    serving,
)

import gpuwm
import gpuwm.vllm
from gpuwm.vllm import switching, targets

HOLDS_S = 30.0  # for what takes milliseconds


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def server(engine: Engine) -> Iterator[Server]:
    with serving(engine) as found:
        yield found


def switch(engine: Engine, **options: Any) -> gpuwm.vllm.Switched:
    return gpuwm.vllm.switch(Offline(engine), "llama@v2", **options)


# ---- the order of things ----


def test_all_ranks_move_while_the_engine_is_paused(engine: Engine) -> None:
    found = switch(engine)
    assert (found.version, found.id, found.before) == ("llama@v2", NEW, "llama@v1")
    assert (found.moved, found.ranks) == (True, RANKS)
    assert list(found.seconds) == ["prepare", "pause", "exchange", "resume"]
    assert engine.ids == [NEW] * RANKS
    assert engine.others == [None] * RANKS
    assert engine.did == [
        "prepare llama@v2 yes no",
        *("sleep keep", "prefix", "mm", "encoder"),
        *("commit", "wake", "settle new"),
    ]


def test_nothing_is_paused_if_the_engine_is_there_already(engine: Engine) -> None:
    engine.ids = [NEW] * RANKS
    found = switch(engine, verify=False)
    assert (found.moved, found.before) == (False, "llama@v2")
    assert engine.did == ["prepare llama@v2 no no", "settle new"]


@pytest.mark.parametrize("mode", STEPS)
def test_an_asynchronous_engine(engine: Engine, mode: str) -> None:
    client = Asynchronous(engine)
    found = asyncio.run(gpuwm.vllm.switch_async(client, "llama@v2", mode=mode))
    assert found.moved
    assert list(found.seconds) == ["prepare", "pause", "exchange", "resume"]
    assert engine.did[1:] == STEPS[mode]


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("kind", ["client", "server"])
def test_requests_that_come_meanwhile_wait(
    engine: Engine, server: Server, kind: str, mode: str
) -> None:
    for step in ("sleep", "pause", "gpuwm_commit", "wake"):
        engine.fails[step, -1] = engine.come
    if kind == "client":
        asyncio.run(gpuwm.vllm.switch_async(Asynchronous(engine), "llama@v2", mode=mode))
    else:
        gpuwm.vllm.switch(server.url, "llama@v2", mode=mode)
    assert engine.came == ["llama@v2"] * (3 if mode == "keep" else 4)


@pytest.mark.parametrize("kind", ["client", "server"])
def test_who_takes_over_serves_what_a_dead_caller_left_refusing(
    engine: Engine, server: Server, kind: str
) -> None:
    engine.pause("wait")
    if kind == "client":
        asyncio.run(gpuwm.vllm.switch_async(Asynchronous(engine), "llama@v2", take_over=True))
    else:
        gpuwm.vllm.switch(server.url, "llama@v2", take_over=True)
    assert not engine.refuses
    assert not engine.paused


def test_a_switch_below_an_event_loop(engine: Engine) -> None:
    async def below() -> None:
        assert switch(engine).moved

    asyncio.run(below())


# ---- failures: what each leaves ----


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_that_can_not_prepare(engine: Engine, rank: int) -> None:
    engine.fails["gpuwm_prepare", rank] = raising(gpuwm.Mismatch("tensor w differs", "remedy"))
    with pytest.raises(gpuwm.Mismatch) as caught:
        switch(engine)
    assert caught.value.message == f"the LLM, rank {rank}, could not prepare: tensor w differs"
    assert caught.value.detail == "remedy"
    assert engine.did[1:] == ["settle old"]
    assert engine.is_as_before


def test_an_error_that_is_none_of_gpuwms(engine: Engine) -> None:
    engine.fails["gpuwm_prepare", 0] = raising(ZeroDivisionError("by zero"))
    with pytest.raises(
        gpuwm.Error, match="could not prepare: ZeroDivisionError: by zero"
    ) as caught:
        switch(engine)
    assert type(caught.value) is gpuwm.Error


def test_an_alias_that_moves_between_ranks(engine: Engine) -> None:
    engine.refs = [NEW, OLD]
    said = rf"llama@v2 \({NEW}\), llama@v1 \({OLD}\): its alias moved meanwhile: switch again"
    with pytest.raises(gpuwm.Mismatch, match=said):
        switch(engine)
    assert engine.is_as_before


def test_an_engine_that_does_not_become_idle(engine: Engine) -> None:
    engine.unfinished = True
    switching_ = gpuwm.vllm.switch_async(
        Asynchronous(engine), "llama@v2", mode="finish", drain=0.05
    )
    with pytest.raises(gpuwm.TimedOut, match=r"not idle in 0\.05 s.*old weights.*drain="):
        asyncio.run(switching_)
    assert engine.did[1:] == ["sleep wait", "wake", "settle old"]
    assert engine.is_as_before


def test_an_engine_that_can_not_say_whether_it_is_paused(engine: Engine) -> None:
    class Broken(Asynchronous):
        async def is_sleeping(self) -> bool:
            raise RuntimeError("the core is gone")

    with pytest.raises(gpuwm.Error, match=r"not tell whether .* RuntimeError: the core is gone"):
        asyncio.run(gpuwm.vllm.switch_async(Broken(engine), "llama@v2"))
    assert engine.did[1:] == ["settle old"]


def test_an_engine_that_is_neither_paused_nor_resumed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "COMMIT_S", 0.05)
    engine.fails["wake", -1] = raising(RuntimeError("no"))
    client = Asynchronous(engine, hangs="pause_generation")
    with pytest.raises(gpuwm.vllm.StillPaused, match="was not switched, but may still be paused"):
        asyncio.run(gpuwm.vllm.switch_async(client, "llama@v2"))
    assert engine.did[-1] == "settle old"


def test_an_engine_that_stays_paused_after_a_rank_could_not_move(engine: Engine) -> None:
    engine.fails["gpuwm_commit", 0] = raising(gpuwm.Busy("captured"))
    engine.fails["wake", -1] = raising(RuntimeError("no"))
    with pytest.raises(gpuwm.vllm.StillPaused, match="may still be paused: .* captured"):
        switch(engine)


def test_a_resume_that_works_the_second_time(engine: Engine) -> None:
    def once() -> None:
        engine.fails.clear()
        raise RuntimeError("no")

    engine.fails["wake", -1] = once
    assert switch(engine).moved
    assert not engine.paused


def test_whoever_interrupts_the_way_back_leaves_no_switch(engine: Engine) -> None:
    engine.fails["sleep", -1] = raising(RuntimeError("no pause"))
    engine.fails["wake", -1] = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        switch(engine)
    assert engine.did[-1] == "settle old"


def test_an_engine_that_does_not_pause(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "COMMIT_S", 0.05)
    client = Asynchronous(engine, hangs="pause_generation")
    switching_ = gpuwm.vllm.switch_async(client, "llama@v2", mode="finish", drain=HOLDS_S)
    with pytest.raises(gpuwm.TimedOut, match=r"not be paused in 0\.05 s.*old weights.*hang"):
        asyncio.run(switching_)
    assert engine.did[1:] == ["sleep wait", "pause keep", "wake", "settle old"]
    assert engine.is_as_before


def test_requests_of_an_llm_that_only_it_can_finish(engine: Engine) -> None:
    engine.unfinished = True
    with pytest.raises(gpuwm.Busy, match='mode="keep"'):
        switch(engine, mode="finish")
    assert engine.is_as_before
    assert switch(engine, mode="keep").moved


@pytest.mark.parametrize("step", ["sleep", "pause"])
def test_a_pause_that_fails(engine: Engine, step: str) -> None:
    engine.fails[step, -1] = raising(RuntimeError("no pause"))
    client = Asynchronous(engine)
    with pytest.raises(RuntimeError, match="no pause"):
        asyncio.run(gpuwm.vllm.switch_async(client, "llama@v2", mode="finish"))
    assert engine.did[-2:] == ["wake", "settle old"]
    assert "commit" not in engine.did
    assert engine.is_as_before


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_that_can_not_move(engine: Engine, rank: int) -> None:
    engine.fails["gpuwm_commit", rank] = raising(gpuwm.Busy("a stream is captured"))
    with pytest.raises(gpuwm.Busy, match=f"rank {rank}, could not exchange: a stream"):
        switch(engine)
    assert engine.did[-3:] == ["commit", "settle old", "wake"]
    assert engine.is_as_before


def test_a_rank_that_loses_its_memory(engine: Engine) -> None:
    engine.fails["gpuwm_commit", 1] = raising(gpuwm.Lost("neither could be mapped"))
    with pytest.raises(gpuwm.Lost, match=r"neither could be mapped; .* neither version .*paused"):
        switch(engine)
    assert engine.paused


def test_an_answer_that_is_late(engine: Engine) -> None:
    def late() -> None:
        for rank in range(RANKS):
            engine.exchange(rank)
        raise TimeoutError("no answer in 30 s")

    engine.fails["gpuwm_commit", -1] = late
    with pytest.raises(gpuwm.TimedOut, match="could not exchange: no answer in 30 s"):
        switch(engine)
    assert engine.is_as_before


def test_a_rank_that_can_not_go_back(engine: Engine) -> None:
    engine.fails["gpuwm_commit", 1] = raising(gpuwm.Busy("captured"))
    engine.fails["gpuwm_settle", 0] = raising(gpuwm.Lost("no memory"))
    with pytest.raises(gpuwm.Lost, match=r"captured; nor could all ranks go back.*no memory"):
        switch(engine)
    assert engine.ids == [NEW, OLD]
    assert engine.paused


def test_a_rank_that_dies_while_the_others_move(engine: Engine) -> None:
    engine.fails["gpuwm_commit", -1] = raising(RuntimeError("EngineDeadError"))
    engine.fails["gpuwm_settle", -1] = raising(RuntimeError("EngineDeadError"))
    with pytest.raises(gpuwm.Lost, match="start it again"):
        switch(engine)
    assert "wake" not in engine.did


def test_a_rank_that_goes_back_to_the_new_version(engine: Engine) -> None:
    engine.fails["gpuwm_commit", 1] = raising(gpuwm.Busy("captured"))

    def forgotten() -> None:
        engine.moved[0] = False  # so it stays where it is

    engine.fails["gpuwm_settle", 0] = forgotten
    with pytest.raises(gpuwm.Lost, match="rank 0 has moved"):
        switch(engine)
    assert engine.paused


def test_an_engine_that_can_not_be_resumed(engine: Engine) -> None:
    engine.fails["wake", -1] = raising(RuntimeError("no"))
    with pytest.raises(gpuwm.Error, match="is on llama@v2 now, but may still be paused: no"):
        switch(engine)
    assert engine.others == [None] * RANKS


def test_a_lease_that_is_not_given_back(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.fails["gpuwm_settle", 1] = raising(gpuwm.Disconnected("gpuwmd is gone"))
    assert switch(engine).moved
    assert "still holds the old version" in caplog.text


def test_ranks_without_the_extension(engine: Engine) -> None:
    missing = AttributeError("'Worker' object has no attribute 'gpuwm_prepare'")
    engine.fails["gpuwm_prepare", -1] = raising(missing)
    engine.fails["gpuwm_settle", -1] = raising(missing)
    with pytest.raises(gpuwm.Unsupported, match=r"--worker-extension-cls gpuwm\.vllm\.Extension"):
        switch(engine)


# ---- several callers, and callers that go ----


def test_the_second_of_two_callers_is_refused(engine: Engine) -> None:
    async def both() -> list[Any]:
        calls = [gpuwm.vllm.switch_async(Asynchronous(engine), "llama@v2") for _ in range(2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second = asyncio.run(both())
    assert first.moved
    assert isinstance(second, gpuwm.Busy)
    assert engine.did.count("wake") == 1
    assert engine.ids == [NEW] * RANKS
    assert not engine.paused


def test_a_caller_whose_place_was_taken_leaves_the_pause_alone(engine: Engine) -> None:
    def taken() -> None:
        engine.token = "another"

    engine.fails["gpuwm_commit", -1] = taken
    with pytest.raises(gpuwm.Cancelled, match="took this one's place"):
        switch(engine)
    assert engine.paused
    assert engine.did[-1] == "commit"


@pytest.mark.parametrize("paused", ["keep", "sleep"])
def test_an_engine_that_somebody_paused_stays_so(engine: Engine, paused: str) -> None:
    engine.paused = True
    with pytest.raises(gpuwm.Busy, match="is paused or asleep: resume or wake it"):
        switch(engine)
    assert engine.paused
    assert engine.did[1:] == ["settle old"]


def test_who_takes_over_resumes_what_a_dead_caller_paused(engine: Engine) -> None:
    engine.paused = True
    assert switch(engine, take_over=True).moved
    assert engine.did[0] == "prepare llama@v2 yes yes"
    assert not engine.paused
    engine.paused = True
    assert not switch(engine, take_over=True).moved
    assert not engine.paused


def test_ranks_that_an_earlier_switch_left_on_different_versions(engine: Engine) -> None:
    engine.ids = [NEW, OLD]
    with pytest.raises(gpuwm.Error, match="on different versions.*: start the engine again"):
        switch(engine)
    assert "sleep keep" not in engine.did


@pytest.mark.parametrize(
    ("method", "done"),
    [
        ("gpuwm_prepared", ["settle old"]),
        ("gpuwm_commit", ["pause keep", "settle old", "wake"]),
    ],
)
def test_a_caller_that_is_cancelled(engine: Engine, method: str, done: list[str]) -> None:
    async def cancelled() -> None:
        client = Asynchronous(engine, hangs=method)
        task = asyncio.ensure_future(gpuwm.vllm.switch_async(client, "llama@v2"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert engine.did[1:] == done
    assert engine.is_as_before


def test_a_caller_that_is_cancelled_while_requests_end(engine: Engine) -> None:
    async def cancelled() -> None:
        begun = asyncio.Event()
        engine.unfinished, engine.fails["sleep", -1] = True, begun.set
        switching_ = gpuwm.vllm.switch_async(Asynchronous(engine), "llama@v2", mode="finish")
        task = asyncio.ensure_future(switching_)
        await asyncio.wait_for(begun.wait(), HOLDS_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert engine.did[1:] == ["sleep wait", "wake", "settle old"]
    assert engine.is_as_before


def test_a_caller_that_is_interrupted_as_it_resumes(engine: Engine) -> None:
    def interrupted() -> None:
        engine.fails.clear()
        raise KeyboardInterrupt

    engine.fails["wake", -1] = interrupted
    with pytest.raises(KeyboardInterrupt):
        switch(engine)
    assert engine.did[-3:] == ["wake", "wake", "settle new"]
    assert not engine.paused


def test_a_rank_that_is_never_prepared(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "PREPARE_S", 0.02)
    engine.polls = 1000
    with pytest.raises(gpuwm.TimedOut, match=r"rank 1, was not prepared in 0\.02 s"):
        switch(engine)
    assert engine.is_as_before


def test_an_engine_that_hangs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "COMMIT_S", 0.05)
    client = Asynchronous(engine, hangs="gpuwm_prepare")
    with pytest.raises(gpuwm.TimedOut, match=r"could not prepare: no answer in 0\.05 s"):
        asyncio.run(gpuwm.vllm.switch_async(client, "llama@v2"))


def test_a_version_that_a_restart_has_lost(engine: Engine) -> None:
    engine.fails["gpuwm_prepared", 0] = raising(gpuwm.Lost("was lost at a restart"))
    with pytest.raises(gpuwm.NotFound, match="was lost at a restart"):
        switch(engine)
    assert engine.is_as_before


def test_caches_that_are_not_emptied(engine: Engine) -> None:
    engine.fails["prefix", -1] = raising(AssertionError())
    with pytest.raises(gpuwm.Error, match="could not empty its prefix cache"):
        switch(engine)
    assert engine.is_as_before


# ---- arguments ----


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("localhost:8000", {}, "begin it with http://"),
        (object(), {}, "object is no engine that can be switched"),
        (Offline(Engine()), {"mode": "abort"}, '"keep" or "finish"'),
        (Offline(Engine()), {"drain": 5}, 'only "finish" waits for requests'),
        (Offline(Engine()), {"mode": "finish", "drain": -1}, "more than 0, and at most 600"),
        (Offline(Engine()), {"mode": "finish", "drain": 601}, "more than 0, and at most 600"),
        (Offline(Engine()), {"mode": "finish", "drain": float("nan")}, "more than 0"),
        (Asynchronous(Engine()), {}, r"await gpuwm\.vllm\.switch_async"),
    ],
)
def test_arguments_that_are_refused(target: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=said):
        gpuwm.vllm.switch(target, "llama@v2", **options)


def test_no_ranks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "answers", lambda *_: [])
    with pytest.raises(gpuwm.Error, match="has no ranks"):
        switch(engine)


def test_a_target_that_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits(*_: Any) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(targets.Offline, "pause", waits)
    with pytest.raises(AssertionError, match="waited for an event loop"):
        switch(engine)
