"""A server that nobody uses makes way when another engine wants its room, and wakes with the next
request. The engine, its client and its scheduler are vLLM's own; the rank below is
`stepping.Worker`."""

from __future__ import annotations

import asyncio
import os
import pathlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import Daemon, running

import gpuwm
from gpuwm.engines import control

from .test_switching_requests import Serving

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn

GIB = 1 << 30


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running("--budget", "host=10G") as started:
        yield started


# ---- when it parks -------------------------------------------------------------------------------


class Engine:
    """What an Idle parks and wakes."""

    def __init__(self, seconds: float = 0) -> None:
        from gpuwm.vllm.wanted import Idle

        self.asleep = False
        self.may_wake = True
        self.parking: asyncio.Event | None = None  # a park waits for it
        self.idle = Idle(seconds, asyncio.Lock(), self.park, self.wake)

    async def park(self) -> bool:
        if self.parking is not None:
            await self.parking.wait()
        did, self.asleep = not self.asleep, True
        return did

    async def wake(self) -> None:
        if not self.may_wake:
            raise gpuwm.NoRoom("no room", "wait")
        self.asleep = False


def test_it_parks_when_it_is_idle_and_wakes_with_a_request() -> None:
    async def run() -> None:
        engine = Engine()
        await engine.idle.answer(None)
        assert engine.asleep
        async with engine.idle.request():
            assert not engine.asleep
        assert not engine.idle.parked

    asyncio.run(run())


def test_a_request_in_flight_keeps_it_awake_for_as_long_as_the_room_is_wanted() -> None:
    async def run() -> None:
        engine = Engine(0.01)
        async with engine.idle.request():
            await engine.idle.answer(0)
            assert not engine.asleep
            answer = asyncio.create_task(engine.idle.answer(None))
            await asyncio.sleep(0.05)
            assert not engine.asleep
        await answer
        assert engine.asleep

    asyncio.run(run())


def test_a_request_that_comes_while_it_parks_wakes_it() -> None:
    async def run() -> None:
        engine = Engine()
        engine.parking = asyncio.Event()
        answer = asyncio.create_task(engine.idle.answer(None))
        await asyncio.sleep(0)
        async with engine.idle.request():
            assert not engine.asleep
            engine.parking.set()
            await answer
            assert not engine.asleep
            assert not engine.idle.parked

    asyncio.run(run())


def test_an_engine_that_can_t_wake_is_asked_again_by_the_next_request() -> None:
    async def run() -> None:
        engine = Engine()
        await engine.idle.answer(None)
        engine.may_wake = False
        with pytest.raises(gpuwm.NoRoom):
            async with engine.idle.request():
                raise AssertionError("it sleeps")
        engine.may_wake = True
        async with engine.idle.request():
            assert not engine.asleep

    asyncio.run(run())


def test_what_was_parked_already_is_not_its_own_to_wake() -> None:
    async def run() -> None:
        engine = Engine()
        engine.asleep = True
        await engine.idle.answer(None)
        assert not engine.idle.parked
        async with engine.idle.request():
            assert engine.asleep

    asyncio.run(run())


def config(sleeps: bool = True, servers: int = 1) -> Any:
    return types.SimpleNamespace(
        model_config=types.SimpleNamespace(enable_sleep_mode=sleeps),
        parallel_config=types.SimpleNamespace(_api_process_count=servers),
    )


def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuwm.vllm.wanted import VARIABLE, idle_seconds

    monkeypatch.delenv(VARIABLE, raising=False)
    assert idle_seconds(config(sleeps=False)) is None
    for wrong in ("soon", "-1", "inf", "nan", ""):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(gpuwm.Invalid, match=VARIABLE):
            idle_seconds(config())
    monkeypatch.setenv(VARIABLE, "1.5")
    assert idle_seconds(config()) == 1.5
    with pytest.raises(gpuwm.Unsupported, match="needs sleep mode"):
        idle_seconds(config(sleeps=False))
    with pytest.raises(gpuwm.Unsupported, match="several API servers"):
        idle_seconds(config(servers=2))


# ---- all of it -----------------------------------------------------------------------------------


class Yielding(Serving):
    """With the middleware before an application that notes its requests."""

    async def _start(self, model: pathlib.Path) -> None:
        from gpuwm.vllm import Control

        await super()._start(model)
        self.engine.vllm_config.model_config.enable_sleep_mode = True
        self.awake_then: list[bool] = []
        self._ended = asyncio.Event()
        began = asyncio.Event()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.awake_then.append(not (await self.ask_rank("gpuwm_asleep"))["asleep"])
                return
            began.set()
            await self._ended.wait()

        state = types.SimpleNamespace(engine_client=self.engine)
        scope = {"type": "lifespan", "app": types.SimpleNamespace(state=state)}
        nothing: Any = None
        self._control = Control(application)
        self._life = asyncio.create_task(self._control(scope, nothing, nothing))
        await began.wait()

    async def post(self) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        nothing: Any = None
        scope = {"type": "http", "method": "POST", "path": "/v1/completions"}
        await self._control(scope, nothing, send)
        return sent

    def end(self) -> None:
        async def stop() -> None:
            self._ended.set()
            await self._life

        self.run(stop())
        super().end()


@pytest.fixture
def serving(
    daemon: Daemon, checkpoints: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Yielding]:
    monkeypatch.setenv("GPUWM_PARK_WHEN_WANTED", "0")
    gpuwm.publish({"w": torch.zeros(16)}, "wanted@v1", bind=False)
    found = Yielding(checkpoints / "dense")
    yield found
    found.end()


def want_room() -> None:
    """An engine that is awake has room, and another one waits for it in vain."""
    awake, waits = gpuwm.attach("wanted@v1", room=6 * GIB), gpuwm.attach("wanted@v1")
    waits.park()
    with pytest.raises(gpuwm.TimedOut):
        waits.unpark(wait=0.1, room=6 * GIB)
    awake.close()
    waits.close()


def test_a_server_makes_way_and_wakes_with_a_request(serving: Yielding) -> None:
    async def is_asleep() -> bool:
        found: bool = (await serving.ask_rank("gpuwm_asleep"))["asleep"]
        return found

    async def makes_way() -> None:
        while not await is_asleep():  # it may not listen yet
            await asyncio.to_thread(want_room)

    async def run() -> None:
        assert await serving.post() == []
        await makes_way()
        assert await serving.post() == []
        assert serving.awake_then == [True, True]
        await asyncio.to_thread(control.park, str(os.getpid()))
        await serving.post()
        assert await is_asleep(), "an operator parked it, and wakes it"
        await asyncio.to_thread(control.wake, str(os.getpid()))
        await makes_way()
        await serving.ask_rank("refuse")
        sent = await serving.post()
        assert sent[0]["status"] == 503
        assert b"can't wake" in sent[1]["body"]
        assert await serving.post() == []
        assert not await is_asleep()

    serving.run(run())
