"""An operator parks and wakes a server. The engine, its client and its scheduler are vLLM's own;
the rank below is `stepping.Worker`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pathlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuwm.vllm
from gpuwm.engines import __main__ as command
from gpuwm.engines import control
from gpuwm.vllm import controlled

from .steps import other
from .test_switching_requests import TOKENS, Serving, answer_of, until

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn


class Controlled(Serving):
    """With the middleware before its application."""

    async def _start(self, model: pathlib.Path) -> None:
        from gpuwm.vllm import Control

        await super()._start(model)
        self._ended = asyncio.Event()
        began = asyncio.Event()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            began.set()
            await self._ended.wait()

        state = types.SimpleNamespace(engine_client=self.engine)
        scope = {"type": "lifespan", "app": types.SimpleNamespace(state=state)}
        nothing: Any = None
        self._life = asyncio.create_task(Control(application)(scope, nothing, nothing))
        await began.wait()

    def end(self) -> None:
        async def stop() -> None:
            self._ended.set()
            await self._life

        self.run(stop())
        super().end()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(function, str(os.getpid()), *arguments)


@pytest.fixture(scope="module")
def serving(checkpoints: pathlib.Path) -> Iterator[Controlled]:
    found = Controlled(checkpoints / "dense")
    yield found
    found.end()


def test_requests_in_flight_go_on_after_the_wake(serving: Controlled) -> None:
    async def keep() -> None:
        version = await serving.ask_rank("begin")
        first = await serving.ask()
        assert (await serving.call(control.park))["did"]
        assert (await serving.ask_rank("gpuwm_asleep"))["asleep"]
        assert not (await serving.call(control.park))["did"]
        second = await serving.ask(TOKENS)
        assert (await serving.call(control.wake))["did"]
        assert (await answer_of(second)).tokens == [version] * TOKENS
        await serving.ask_rank("end_requests")
        assert (await answer_of(first)).reason == "stop"
        assert not (await serving.call(control.wake))["did"]

    serving.run(keep())


def test_requests_in_flight_may_end_first(serving: Controlled) -> None:
    async def wait() -> None:
        await serving.ask_rank("begin")
        first = await serving.ask()
        with pytest.raises(gpuwm.TimedOut, match="requests were still in flight after"):
            await serving.call(control.park, "wait", 0.1)
        assert not (await serving.ask_rank("gpuwm_asleep"))["asleep"]
        parking = asyncio.create_task(serving.call(control.park, "wait"))
        await until(serving.engine.is_sleeping)
        with pytest.raises(gpuwm.Busy, match="another park or wake"):
            await serving.call(control.wake)
        await serving.ask_rank("end_requests")
        assert (await parking)["did"]
        assert (await answer_of(first)).reason == "stop"
        await serving.call(control.wake)

    serving.run(wait())


def test_requests_are_aborted_only_if_asked(serving: Controlled) -> None:
    async def abort() -> None:
        await serving.ask_rank("begin")
        first = await serving.ask()
        await serving.call(control.park, "abort")
        assert (await answer_of(first)).reason == "abort"
        await serving.call(control.wake)

    serving.run(abort())


def test_an_engine_that_can_t_park_serves_and_one_that_can_t_wake_sleeps(
    serving: Controlled,
) -> None:
    async def fail() -> None:
        version = await serving.ask_rank("begin")
        await serving.ask_rank("refuse")
        with pytest.raises(gpuwm.Error, match="could not park: .*as the test wants it"):
            await serving.call(control.park)
        short = [version] * TOKENS
        assert (await answer_of(await serving.ask(TOKENS))).tokens == short
        await serving.call(control.park)
        await serving.ask_rank("refuse")
        with pytest.raises(gpuwm.Error, match="could not wake: .*as the test wants it"):
            await serving.call(control.wake)
        waits = await serving.ask(TOKENS)
        assert await serving.engine.is_sleeping()
        assert (await serving.call(control.wake))["did"]
        assert (await answer_of(waits)).tokens == short

    serving.run(fail())


def test_it_switches(serving: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the routes for development."""

    async def switch() -> None:
        version = await serving.ask_rank("begin")
        found = await serving.call(control.switch, "m@other")
        assert (found["did"], found["id"]) == (True, str(other(version)))
        assert (await answer_of(await serving.ask(TOKENS))).tokens == [other(version)] * TOKENS
        await serving.call(control.park)
        with pytest.raises(gpuwm.Busy, match="could not switch: .*asleep"):
            await serving.call(control.switch, "m@other")
        await serving.call(control.wake)

    serving.run(switch())


def test_a_switch_that_left_the_engine_paused_takes_over(
    serving: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def paused(client: Any, ref: str, take_over: bool = False) -> gpuwm.vllm.Switched:
        asked.append((ref, take_over))
        if not take_over:
            raise gpuwm.vllm.StillPaused("as the test wants it")
        return gpuwm.vllm.Switched("m@v2", "2", "m@v1", True, 1, {})

    monkeypatch.setattr(controlled, "switch_async", paused)
    assert serving.run(serving.call(control.switch, "m@other"))["id"] == "2"
    assert asked == [("m@other", False), ("m@other", True)]


def test_a_paused_engine_is_left_alone(serving: Controlled) -> None:
    async def paused() -> None:
        await serving.engine.pause_generation(mode="keep")
        with pytest.raises(gpuwm.Busy, match="the engine is paused"):
            await serving.call(control.park)
        await serving.engine.resume_generation()

    serving.run(paused())


def test_it_listens_in_the_loop_that_vllm_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sockets are no Python sockets, and its other side is asked for its user."""
    uvloop: Any = importlib.import_module("uvloop")
    monkeypatch.setattr(control, "socket_name", lambda pid: f"\0gpuwm-test-{pid}")

    from gpuwm.vllm import Control

    class Client:
        async def collective_rpc(self, method: str, args: Any = ()) -> list[dict[str, Any]]:
            return [{"rank": 0, "asleep": True}]

    async def run() -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def application(scope: Any, receive: Any, send: Any) -> None:
            found.update(await asyncio.to_thread(control.park, str(os.getpid())))

        state = types.SimpleNamespace(engine_client=Client())
        scope = {"type": "lifespan", "app": types.SimpleNamespace(state=state)}
        nothing: Any = None
        await Control(application)(scope, nothing, nothing)
        return found

    assert uvloop.run(run())["did"] is False


def test_another_user_is_refused(serving: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "is_ours", lambda connection: False)
    with pytest.raises(gpuwm.Refused, match="belongs to another user"):
        serving.run(serving.call(control.wake))
    with pytest.raises(gpuwm.Error, match="did not say whether it could wake"):
        serving.run(serving.call(_ask_anyway, monkeypatch))


def _ask_anyway(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side alone finds that the caller is another user's."""
    asked: list[bool] = []

    def is_ours(connection: Any) -> bool:
        asked.append(True)
        return len(asked) == 1

    monkeypatch.setattr(control, "is_ours", is_ours)
    control.wake(target)


def test_the_port_tells_the_pid_and_passes_the_rest() -> None:
    from gpuwm.vllm import Control

    passed, sent = [], []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["path"])

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        nothing: Any = None
        middleware = Control(application)
        for path in ("/v1/models", control.PATH):
            await middleware({"type": "http", "path": path}, nothing, send)

    asyncio.run(run())
    assert passed == ["/v1/models"]
    assert sent[0]["status"] == 200
    assert sent[1]["body"] == b'{"pid": %d}' % os.getpid()


def test_the_command_says_what_it_did(
    serving: Controlled, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*words: str) -> int:
        return await asyncio.to_thread(command.main, list(words))

    pid = str(os.getpid())
    for words, said in (
        (("park", pid), "asleep after "),
        (("park", pid, "--mode", "wait", "--drain", "1"), "asleep already"),
        (("wake", pid), "awake after "),
        (("wake", pid), "awake already"),
    ):
        assert serving.run(run(*words)) == 0
        assert capsys.readouterr().out.startswith(said)
    assert serving.run(run("park", "1")) == 1
    assert "no engine listens for process 1" in capsys.readouterr().err
    for wrong in (("park", pid, "--drain", "1"), ("park", "localhost:8000")):
        assert serving.run(run(*wrong)) == 1
    with contextlib.suppress(SystemExit):
        command.main(["park", pid, "--mode", "later"])
    assert "invalid choice: 'later'" in capsys.readouterr().err
