"""Switching an engine, with stand-ins for its ranks: what is called when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from switched import (
    NEW,
    RANKS,
    Asynchronous,
    Engine,
    Offline,
    Server,
    engine,
    server,
    switch,
)

import gpuwm
import gpuwm.vllm
from gpuwm.vllm import targets

__all__ = ["engine", "server"]  # fixtures


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


STEPS = {
    "keep": ["pause keep", "commit", "wake", "settle new"],
    "finish": ["sleep wait", "pause keep", "commit", "wake", "settle new"],
}


@pytest.mark.parametrize("mode", STEPS)
def test_an_asynchronous_engine(engine: Engine, mode: str) -> None:
    client = Asynchronous(engine)
    found = asyncio.run(gpuwm.vllm.switch_async(client, "llama@v2", mode=mode))
    assert found.moved
    assert list(found.seconds) == ["prepare", "pause", "exchange", "resume"]
    assert engine.did[1:] == STEPS[mode]


@pytest.mark.parametrize("mode", STEPS)
def test_a_server(engine: Engine, server: Server, mode: str) -> None:
    found = gpuwm.vllm.switch(server.url, "llama@v2", mode=mode)
    assert (found.moved, found.ranks) == (True, RANKS)
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
