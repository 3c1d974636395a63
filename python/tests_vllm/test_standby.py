"""What a standby relies on in vLLM: its arguments, its application, its processes."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import types
from typing import Any

import pytest

from gpuwm.vllm import processes, serving_arguments
from gpuwm.vllm import record as records
from gpuwm.vllm.gate import Gate

from .conftest import serve_parser

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn


def parsed(given: list[str]) -> Any:
    return serve_parser().parse_args(given)


def test_vllm_reads_the_arguments_as_they_are_meant(tmp_path: pathlib.Path) -> None:
    lock = str(tmp_path / "lock")
    extra = json.dumps({"ref": "m@v1"})
    given = ["--port", "8001", "--middleware", "a.B", "--model_loader_extra_config", extra]
    found = parsed(serving_arguments.complete(lock, given))
    assert found.load_format == "gpuwm"
    assert found.worker_cls == "gpuwm.vllm.Worker"
    assert found.middleware == ["a.B", "gpuwm.vllm.gate.Gate"]
    assert found.model_loader_extra_config == {"ref": "m@v1", "standby": lock}
    assert found.port == 8001


def test_what_is_refused_is_an_option_of_vllm() -> None:
    options = [*serving_arguments._ALLOWED, *serving_arguments._SHORT]
    for option in options:
        if option not in ("--headless", "--grpc"):
            parsed([option, "1" if option != "--kv-transfer-config" else "{}"])
    assert parsed(["--headless"]).headless
    short = {short: parsed([short, "1"]) for short in serving_arguments._SHORT}
    for name, long in serving_arguments._SHORT.items():
        assert getattr(short[name], long[2:].replace("-", "_")) == 1


def test_a_rank_says_which_process_it_is() -> None:
    import gpuwm.vllm

    worker = gpuwm.vllm.Worker.__new__(gpuwm.vllm.Worker)
    worker.rank = 3
    found = worker.gpuwm_process()
    assert (found["rank"], found["pid"]) == (3, os.getpid())
    assert found["parents"][0][0] == os.getppid()
    failed = worker.gpuwm_end_with("1", "1")
    assert failed["error"] == "Unsupported"


def test_the_engine_core_is_where_the_gate_looks() -> None:
    from vllm.v1.engine import core_client, utils

    assert "self.processes" in inspect.getsource(utils.CoreEngineProcManager.__init__)
    assert "engine_manager" in inspect.signature(core_client.BackgroundResources).parameters
    assert "self.resources.engine_manager" in inspect.getsource(core_client.MPClient.__init__)


class Client:
    """An engine whose one rank is a process that does nothing."""

    def __init__(self, lock: str, rank: int) -> None:
        self.vllm_config = types.SimpleNamespace(
            load_config=types.SimpleNamespace(
                model_loader_extra_config={"standby": lock}, load_format="gpuwm"
            ),
            parallel_config=types.SimpleNamespace(data_parallel_size=1),
            kv_transfer_config=None,
        )
        self.rank = rank
        self.called: list[str] = []

    async def collective_rpc(self, method: str, args: tuple[str, ...]) -> Any:
        self.called.append(method)
        stat, me = processes.stat_of(self.rank), processes.this("")
        assert stat is not None
        parents = [[me.pid, me.started]]
        return [{"rank": 0, "pid": self.rank, "started": stat.started, "parents": parents}]


async def _statuses(app: Any, rank: int) -> list[int]:
    """Of /health while the engine becomes the active one, and after its rank was killed."""
    statuses: list[int] = []
    messages: asyncio.Queue[Any] = asyncio.Queue()
    messages.put_nowait({"type": "lifespan.startup"})
    begun = asyncio.Event()

    async def live(message: Any) -> None:
        assert message["type"] == "lifespan.startup.complete"
        begun.set()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def until(status: int) -> None:
        scope = {"type": "http", "method": "GET", "path": "/health", "headers": []}
        while statuses[-1:] != [status]:
            await app({**scope, "query_string": b""}, messages.get, send)
            await asyncio.sleep(0)

    task = asyncio.create_task(app({"type": "lifespan"}, messages.get, live))
    await begun.wait()
    await asyncio.wait_for(until(200), 30)
    os.kill(rank, signal.SIGKILL)
    await asyncio.wait_for(until(503), 30)
    task.cancel()
    return statuses


def test_the_gate_stands_in_an_application_as_vllms(tmp_path: pathlib.Path) -> None:
    import fastapi

    lock = tmp_path / "lock"
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    app = fastapi.FastAPI()
    app.get("/health")(lambda: None)
    client = Client(str(lock), child.pid)
    app.state.engine_client = client
    app.state.args = types.SimpleNamespace(api_server_count=None)
    app.add_middleware(Gate)
    try:
        statuses = asyncio.run(_statuses(app, child.pid))
    finally:
        child.kill()
        child.wait()
    assert set(statuses) == {200, 503}
    assert client.called == ["gpuwm_process", "gpuwm_end_with", "gpuwm_occupy"]
    record = records.parse(lock.read_bytes())
    assert record is not None
    assert [each.pid for each in record.processes] == [os.getpid(), child.pid]
