"""What a failure of each step of a switch leaves behind."""

from __future__ import annotations

import asyncio

import pytest
from switched import (
    HOLDS_S,
    NEW,
    OLD,
    RANKS,
    Asynchronous,
    Engine,
    engine,
    raising,
    switch,
)

import gpuwm
import gpuwm.vllm
from gpuwm.vllm import _switch

__all__ = ["engine"]  # fixtures


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
    monkeypatch.setattr(_switch, "COMMIT_S", 0.05)
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
    monkeypatch.setattr(_switch, "COMMIT_S", 0.05)
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


def test_a_rank_that_is_never_prepared(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_switch, "PREPARE_S", 0.02)
    engine.polls = 1000
    with pytest.raises(gpuwm.TimedOut, match=r"rank 1, was not prepared in 0\.02 s"):
        switch(engine)
    assert engine.is_as_before


def test_an_engine_that_hangs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_switch, "COMMIT_S", 0.05)
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
