"""The gate before an engine's API server: what passes when, and which engines it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpuwm.vllm import gate as gates
from gpuwm.vllm.gate import Gate

Message = dict[str, Any]


def state(lock: str | None, **changes: Any) -> Any:
    """Of vLLM's application. changes: of what vLLM made of its arguments."""
    values = {"load_format": "gpuwm", "kv": None, "replicas": 1, "servers": None, **changes}
    extra = {} if lock is None else {"standby": lock}
    config = types.SimpleNamespace(
        load_config=types.SimpleNamespace(
            model_loader_extra_config=extra, load_format=values["load_format"]
        ),
        parallel_config=types.SimpleNamespace(data_parallel_size=values["replicas"]),
        kv_transfer_config=values["kv"],
    )
    client = types.SimpleNamespace(vllm_config=config, collective_rpc=values.get("rpc"))
    args = types.SimpleNamespace(api_server_count=values["servers"])
    return types.SimpleNamespace(engine_client=client, args=args)


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "passed", "path": scope["path"]})


def sent_by(app: Callable[..., Awaitable[None]], scope: Message) -> list[Message]:
    """What it sends for a request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def get(path: str, **more: Any) -> Message:
    return {"type": "http", "method": "GET", "path": path, **more}


def turned(which: str) -> Gate:
    found = Gate(application)
    found._turn(which)
    return found


CLOSED = [gates.STARTING, gates.STANDBY, gates.TAKING_OVER, gates.ENDED]


@pytest.mark.parametrize("which", CLOSED)
@pytest.mark.parametrize("path", ["/health", "/ping", "/v1/chat/completions", "/", "/metricsx"])
def test_a_closed_gate_answers_503(which: str, path: str) -> None:
    start, body = sent_by(turned(which), get(path))
    assert start["status"] == 503
    headers = dict(start["headers"])
    assert headers[b"retry-after"] == b"1"
    assert headers[b"content-length"] == b"%d" % len(body["body"])
    assert json.loads(body["body"]) == {"state": which}


@pytest.mark.parametrize("which", [*CLOSED, gates.ACTIVE])
@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/metrics/", "/version"),
        *("/collective_rpc", "/is_sleeping", "/pause", "/resume"),
    ],
)
def test_what_needs_no_kv_cache_passes(which: str, path: str) -> None:
    assert sent_by(turned(which), get(path)) == [{"type": "passed", "path": path}]


@pytest.mark.parametrize(
    "path", ["/start_weight_update", "/update_weights", "/finish_weight_update"]
)
def test_a_standby_takes_no_weight_transfer(path: str) -> None:
    """A standby follows an alias instead."""
    start, body = sent_by(turned(gates.STANDBY), {**get(path), "method": "POST"})
    assert start["status"] == 503
    assert json.loads(body["body"]) == {"state": gates.STANDBY}


@pytest.mark.parametrize("path", ["/health", "/ping", "/v1/models"])
def test_an_open_gate_lets_all_pass(path: str) -> None:
    assert sent_by(turned(gates.ACTIVE), get(path)) == [{"type": "passed", "path": path}]
    socket = {"type": "websocket", "path": path}
    assert sent_by(turned(gates.ACTIVE), socket) == [{"type": "passed", "path": path}]


def test_a_closed_gate_closes_a_websocket() -> None:
    found = sent_by(turned(gates.STANDBY), {"type": "websocket", "path": "/v1/realtime"})
    assert found == [{"type": "websocket.close", "code": 1013}]


@pytest.mark.parametrize("which", [*CLOSED, gates.ACTIVE])
def test_the_report_is_always_there(which: str) -> None:
    start, body = sent_by(turned(which), get("/gpuwm/standby"))
    assert start["status"] == 200
    assert b"retry-after" not in dict(start["headers"])
    assert json.loads(body["body"])["state"] == which


def test_a_path_below_the_root_path() -> None:
    scope = get("/below/gpuwm/standby", root_path="/below")
    assert sent_by(turned(gates.STANDBY), scope)[0]["status"] == 200
    scope = get("/below/metrics", root_path="/below")
    assert sent_by(turned(gates.STANDBY), scope)[0]["type"] == "passed"


@pytest.mark.parametrize(
    ("lock", "changes", "said"),
    [
        (None, {}, 'needs the path of a lock, "standby" in --model-loader-extra-config'),
        ("", {}, "python -m gpuwm.vllm standby"),
        ("lock", {"servers": 2}, "--api-server-count 2 can't stand by"),
        ("lock", {"replicas": 2}, "--data-parallel-size 2 can't stand by"),
        ("lock", {"kv": object()}, "a KV connector can't stand by"),
        ("lock", {"load_format": "auto"}, "--load-format auto can't stand by"),
    ],
)
def test_an_engine_that_can_not_stand_by_does_not_start(
    lock: str | None,
    changes: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert ending_of(state(lock, **changes), monkeypatch) == 1
    assert said in caplog.text


class Ended(Exception):
    """Instead of the process's end."""


def ending_of(engine: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status with which the gate ends an engine."""
    statuses: list[int] = []

    def end(status: int) -> None:
        statuses.append(status)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended):
        asyncio.run(Gate(application)._stand(engine))
    return statuses[0]


def with_ranks(rpc: Callable[..., Awaitable[Any]]) -> Any:
    """An engine whose ranks answer so."""
    return state("lock", rpc=rpc)


def test_ranks_of_another_machine_end_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(method: str, args: tuple[str, ...]) -> Any:
        assert method == "gpuwm_process"
        return [{"rank": 0, "pid": 7, "started": 1, "parents": [[6, 1], [1, 1]]}]

    assert ending_of(with_ranks(answer), monkeypatch) == 1
    assert "rank 0 (pid 7) was not started by the API server" in caplog.text


def test_a_worker_of_another_class_ends_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(method: str, args: tuple[str, ...]) -> Any:
        raise AttributeError(f"'Worker' object has no attribute '{method}'")

    assert ending_of(with_ranks(answer), monkeypatch) == 1
    assert "no attribute 'gpuwm_process'" in caplog.text
    assert "the engine needs --worker-cls gpuwm.vllm.Worker" in caplog.text


def test_ranks_that_do_not_answer_end_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(method: str, args: tuple[str, ...]) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(gates, "ANSWER_S", 0.01)
    assert ending_of(with_ranks(answer), monkeypatch) == 1
    assert "the ranks did not answer gpuwm_process within 0.01 s" in caplog.text


def test_a_rank_that_fails_ends_the_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(method: str, args: tuple[str, ...]) -> Any:
        failed = {"rank": 1, "error": "Unsupported", "message": "no /proc", "detail": "mount /proc"}
        return [{"rank": 0, "pid": 7, "started": 1, "parents": []}, failed]

    assert ending_of(with_ranks(answer), monkeypatch) == 1
    assert "rank 1 could not gpuwm_process: Unsupported: no /proc: mount /proc" in caplog.text


def test_the_engine_core_is_killed_with_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    core = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    engine = state(None)
    manager = types.SimpleNamespace(processes=[core])
    resources = types.SimpleNamespace(engine_manager=manager)
    engine.engine_client.engine_core = types.SimpleNamespace(resources=resources)
    try:
        assert ending_of(engine, monkeypatch) == 1
        assert core.wait(30) == -signal.SIGKILL
    finally:
        core.kill()
        core.wait()
