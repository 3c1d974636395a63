"""Switches by several callers, and by callers that go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from switched import (
    HOLDS_S,
    NEW,
    OLD,
    RANKS,
    Asynchronous,
    Engine,
    engine,
    switch,
)

import gpuwm
import gpuwm.vllm

__all__ = ["engine"]  # fixtures


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
        await asyncio.wait_for(client.hung.wait(), HOLDS_S)
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
