"""Engines that only pretend to serve: an API server with the gate, an engine core and ranks, each a
process. What stands in for the GPU memory of a rank's KV cache is the lock of a file: one process
can have it, and it is free when that process has ended.

Run as a program it is one engine: python standing.py '{"lock": …}'. It prints its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from gpuwm.vllm.gate import Gate
from gpuwm.vllm.lifeline import Lifeline

START_S = 60
_processes = multiprocessing.get_context("fork")


@dataclasses.dataclass(frozen=True)
class Job:
    """lock: the group's. memory: the folder of what stands in for GPU memory. ranks: with one the
    engine core is the rank. occupy: what a rank does when it is to take memory: "takes", "fails",
    "fails once", "stops" (by SIGSTOP), "raises". lifeline: whether ranks end with their API server.
    port: 0 is any."""

    lock: str
    memory: str
    ranks: int = 2
    occupy: str = "takes"
    lifeline: bool = True
    port: int = 0


# ---- a test's view -----------------------------------------------------------------------------


class Engine:
    """An engine that was started."""

    def __init__(self, job: Job, log: pathlib.Path) -> None:
        self.job, self.log = job, log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, __file__, json.dumps(dataclasses.asdict(job))],
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        self._port = 0

    @property
    def pid(self) -> int:
        """Of the API server."""
        return self.process.pid

    @property
    def port(self) -> int:
        if not self._port:
            assert self.process.stdout is not None
            self._port = int(self.process.stdout.readline())
        return self._port

    def get(self, path: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers, and the body as JSON."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                return answer.status, dict(answer.headers), json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.loads(error.read() or b"null")

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/gpuwm/standby")[2]
        return found

    def await_state(self, *states: str) -> dict[str, Any]:
        """The report that has one of these states."""
        end = time.monotonic() + START_S
        while True:
            found = self.report()
            if found["state"] in states:
                return found
            assert time.monotonic() < end, f"{found}\n{self.text()}"
            time.sleep(0.005)

    def pid_of(self, role: str) -> int:
        """Of a process of this engine, which is active."""
        record = self.report()["active"]
        assert record["processes"][0]["pid"] == self.pid
        found = {each["role"]: int(each["pid"]) for each in record["processes"]}
        return found[role]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """All of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def state_of(pid: int) -> str:
    """The letter that /proc has; "X" if there is no such process."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]


def is_alive(pid: int) -> bool:
    """It has not ended; what has ended and was not waited for counts as ended."""
    return state_of(pid) not in "ZX"


def stop(*pids: int) -> None:
    """Stops processes. Returns when they are stopped, which takes a moment."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    while any(state_of(pid) != "T" for pid in pids):
        time.sleep(0.001)


# ---- the engine's processes --------------------------------------------------------------------


class Rank(Lifeline):
    """A worker."""

    def __init__(self, rank: int, job: Job) -> None:
        self.rank, self.job = rank, job
        self.held: Any = None
        self.asked = 0  # how often for memory

    def gpuwm_end_with(self, *arguments: str) -> dict[str, Any]:
        return super().gpuwm_end_with(*arguments) if self.job.lifeline else {"rank": self.rank}

    def gpuwm_occupy(self, wait: str) -> dict[str, Any]:
        if self.job.occupy == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.job.occupy == "raises":
            raise AttributeError("no such method")
        self.asked += 1
        fails = self.job.occupy == "fails" or (self.job.occupy == "fails once" and self.asked == 1)
        if fails and self.rank == 0:
            return {"rank": 0, "error": "NoRoom", "message": "no memory", "detail": "free some"}
        self.held = open(f"{self.job.memory}/{self.rank}", "w")  # noqa: SIM115 (held to the end)
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = "another process has the memory"
            return {"rank": self.rank, "error": "NoRoom", "message": said, "detail": ""}
        return {"rank": self.rank, "bytes": 1 << 30, "seconds": 0.0}


def _serve_rank(pipe: Connection, rank: int, job: Job) -> None:
    worker = Rank(rank, job)
    while True:
        method, arguments = pipe.recv()
        pipe.send(getattr(worker, method)(*arguments))


def _serve_core(pipe: Connection, job: Job) -> None:
    """The engine core: with one rank it is that rank."""
    if job.ranks == 1:
        me = Rank(0, job)
        while True:
            method, arguments = pipe.recv()
            pipe.send([getattr(me, method)(*arguments)])
    ranks = []
    for rank in range(job.ranks):
        mine, theirs = _processes.Pipe()
        _processes.Process(target=_serve_rank, args=(theirs, rank, job), daemon=True).start()
        theirs.close()
        ranks.append(mine)
    while True:
        call = pipe.recv()
        for each in ranks:
            each.send(call)
        pipe.send([each.recv() for each in ranks])


class Client:
    """What stands in for vLLM's asynchronous client."""

    def __init__(self, job: Job) -> None:
        self.pipe, theirs = _processes.Pipe()
        self.core = _processes.Process(target=_serve_core, args=(theirs, job))
        self.core.start()
        theirs.close()
        self.vllm_config = types.SimpleNamespace(
            load_config=types.SimpleNamespace(
                model_loader_extra_config={"standby": job.lock}, load_format="gpuwm"
            ),
            parallel_config=types.SimpleNamespace(data_parallel_size=1),
            kv_transfer_config=None,
        )

    async def collective_rpc(self, method: str, args: tuple[str, ...]) -> Any:
        def call() -> Any:
            self.pipe.send((method, args))
            return self.pipe.recv()  # EOFError if the engine core has ended

        return await asyncio.get_running_loop().run_in_executor(None, call)


class Application:
    """The application behind the gate. /slow answers when the file `go` is in the folder of the
    memory. /running tells how many requests are in the application. After SIGTERM the engine core
    ends first, and the API server when all is answered."""

    def __init__(self, job: Job) -> None:
        self.job = job
        client = Client(job)
        args = types.SimpleNamespace(api_server_count=None)
        self.state = types.SimpleNamespace(engine_client=client, args=args)
        self.running = 0
        self.ends = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            return
        self.running += 1
        if scope["path"] == "/slow":
            while not os.path.exists(f"{self.job.memory}/go"):
                await asyncio.sleep(0.005)
        body = json.dumps({"path": scope["path"], "running": self.running}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
        self.running -= 1

    def terminate(self) -> None:
        self.state.engine_client.core.terminate()
        self.ends.set()


async def _request(app: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As much of HTTP as these tests need."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    method, path, _ = head[0].split()
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            await reader.readexactly(int(value))
    scope = {"type": "http", "method": method, "path": path, "headers": []}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            writer.write(b"HTTP/1.1 %d X\r\nconnection: close\r\n" % message["status"])
            for name, value in message["headers"]:
                writer.write(name + b": " + value + b"\r\n")
            writer.write(b"\r\n")
        else:
            writer.write(message["body"])

    await app(scope, receive, send)
    await writer.drain()
    writer.close()


async def _live(gate: Callable[..., Any], app: Application) -> asyncio.Task[None]:
    """Starts the gate as a server does."""
    begun = asyncio.Event()
    messages: asyncio.Queue[Any] = asyncio.Queue()
    messages.put_nowait({"type": "lifespan.startup"})

    async def send(message: Any) -> None:
        begun.set()

    scope = {"type": "lifespan", "app": app}
    task = asyncio.create_task(gate(scope, messages.get, send))
    await begun.wait()
    return task


async def _serve(job: Job) -> None:
    app = Application(job)
    gate = Gate(app)
    loop = asyncio.get_running_loop()
    task = await _live(gate, app)
    server = await asyncio.start_server(lambda r, w: _request(gate, r, w), "127.0.0.1", job.port)
    loop.add_signal_handler(signal.SIGTERM, app.terminate)
    print(server.sockets[0].getsockname()[1], flush=True)
    await app.ends.wait()
    while app.running:
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.sleep(0)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve(Job(**json.loads(sys.argv[1]))))
