"""Stand-ins for an engine of vLLM that is switched: its ranks, and how a caller reaches it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuwm
import gpuwm.vllm
from gpuwm.vllm import gate

OLD, NEW = "1" * 32, "2" * 32
RANKS = 2
HOLDS_S = 30.0  # for what takes milliseconds
LLAMA = {OLD: "llama@v1", NEW: "llama@v2"}


@dataclasses.dataclass
class Engine:
    """Ranks that do what `gpuwm.vllm.Extension` says, a scheduler, and what happened in order.

    fails: (method, rank) and what is called instead. refs: the version that each rank finds.
    came: for each request what answered it, or "refused".
    """

    ids: list[str] = dataclasses.field(default_factory=lambda: [OLD] * RANKS)
    others: list[str | None] = dataclasses.field(default_factory=lambda: [None] * RANKS)
    moved: list[bool] = dataclasses.field(default_factory=lambda: [False] * RANKS)
    refs: list[str] = dataclasses.field(default_factory=lambda: [NEW] * RANKS)
    paused: bool = False
    refuses: bool = False
    waiting: int = 0  # requests
    came: list[str] = dataclasses.field(default_factory=list)
    did: list[str] = dataclasses.field(default_factory=list)
    fails: dict[tuple[str, int], Callable[[], None]] = dataclasses.field(default_factory=dict)
    unfinished: bool = False
    token: str = ""
    polls: int = 1  # before a rank is prepared

    def answers(self, method: str, arguments: tuple[str, ...]) -> Any:
        assert all(type(argument) is str for argument in arguments)
        if method != "gpuwm_prepared":
            self.did.append(" ".join([method.removeprefix("gpuwm_"), *arguments[1:]]))
        self.fail(method, -1)
        return [self.answer(rank, method, arguments) for rank in range(RANKS)]

    def answer(self, rank: int, method: str, arguments: tuple[str, ...]) -> dict[str, Any]:
        try:
            self.fail(method, rank)
            self.check_token(method, arguments[0])
            if method == "gpuwm_settle" and arguments[0] != self.token:
                return {"rank": rank, **self.said(self.ids[rank])}
            found = getattr(self, method.removeprefix("gpuwm_"))(rank, *arguments[1:])
        except Exception as error:
            detail = getattr(error, "detail", "")
            message = getattr(error, "message", str(error))
            kind = type(error).__name__
            return {"rank": rank, "error": kind, "message": message, "detail": detail}
        return {"rank": rank, **found}

    def check_token(self, method: str, token: str) -> None:
        if method == "gpuwm_prepare":
            if self.token not in ("", token):
                raise gpuwm.Busy("another switch has not ended")
            self.token = token
        elif method != "gpuwm_settle" and self.token != token:
            raise gpuwm.Cancelled("another switch took this one's place")

    def fail(self, method: str, rank: int) -> None:
        if (method, rank) in self.fails:
            self.fails[method, rank]()

    def said(self, version: str) -> dict[str, Any]:
        return {"version": LLAMA[version], "id": version, "bytes": 1}

    def prepare(self, rank: int, ref: str, verify: str, take_over: str) -> dict[str, Any]:
        self.others[rank] = self.refs[rank]
        return {}

    def prepared(self, rank: int) -> dict[str, Any]:
        if rank == RANKS - 1 and self.polls > 0:
            self.polls -= 1
            return {"pending": True}
        before = self.said(self.ids[rank])
        return {**self.said(self.refs[rank]), "before": before, "pending": False}

    def exchange(self, rank: int) -> None:
        assert self.paused
        other = self.others[rank]
        assert other is not None
        self.ids[rank], self.others[rank] = other, self.ids[rank]
        self.moved[rank] = not self.moved[rank]

    def commit(self, rank: int) -> dict[str, Any]:
        self.exchange(rank)
        return self.said(self.ids[rank])

    def settle(self, rank: int, outcome: str) -> dict[str, Any]:
        if outcome == "old" and self.moved[rank]:
            self.exchange(rank)
        self.moved[rank], self.others[rank] = False, None
        if rank == RANKS - 1:
            self.token = ""
        return self.said(self.ids[rank])

    def sleep(self, level: int, mode: str) -> None:
        """Of level 0: no request begins. Each vLLM keeps those that come meanwhile."""
        assert level == 0
        self.did.append(f"sleep {mode}")
        self.paused = True
        self.fail("sleep", -1)

    def pause(self, mode: str) -> None:
        """As vLLM 0.33 does: it refuses requests that come, but in mode "keep"."""
        self.did.append(f"pause {mode}")
        self.paused, self.refuses = True, mode != "keep"
        self.fail("pause", -1)

    def wake(self, tags: list[str]) -> None:
        assert tags == ["scheduling"]
        self.did.append("wake")
        self.fail("wake", -1)
        self.paused = self.refuses = False
        self.came += [self.said(self.ids[0])["version"]] * self.waiting
        self.waiting = 0

    def come(self) -> None:
        """A request comes."""
        if self.refuses:
            self.came.append("refused")
        else:
            assert self.paused
            self.waiting += 1

    @property
    def is_as_before(self) -> bool:
        return self.ids == [OLD] * RANKS and self.others == [None] * RANKS and not self.paused


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


class Offline:
    """A vllm.LLM."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.llm_engine = engine, self

    def collective_rpc(self, method: str, args: tuple[str, ...]) -> Any:
        return self.engine.answers(method, args)

    def is_sleeping(self) -> bool:
        return self.engine.paused

    def has_unfinished_requests(self) -> bool:
        return self.engine.unfinished

    def sleep(self, level: int, mode: str) -> None:
        self.engine.sleep(level, mode)

    def reset_prefix_cache(self, reset_running_requests: bool, reset_connector: bool) -> bool:
        assert (reset_running_requests, reset_connector) == (True, True)
        self.engine.did.append("prefix")
        return ("prefix", -1) not in self.engine.fails

    def reset_mm_cache(self) -> None:
        self.engine.did.append("mm")

    def reset_encoder_cache(self) -> None:
        self.engine.did.append("encoder")

    def wake_up(self, tags: list[str]) -> None:
        self.engine.wake(tags)


class Asynchronous:
    """A client of vLLM's engine. hangs: the method of it or of its ranks that never answers."""

    def __init__(self, engine: Engine, hangs: str = "") -> None:
        self.engine, self.hangs = engine, hangs
        self.hung = asyncio.Event()

    async def collective_rpc(self, method: str, args: tuple[str, ...]) -> Any:
        await asyncio.sleep(0)
        if method == self.hangs:
            self.hung.set()
            await asyncio.Event().wait()
        return self.engine.answers(method, args)

    async def is_sleeping(self) -> bool:
        return self.engine.paused

    async def sleep(self, level: int, mode: str) -> None:
        self.engine.sleep(level, mode)
        if self.engine.unfinished:
            await asyncio.Event().wait()

    async def pause_generation(self, mode: str, clear_cache: bool) -> None:
        assert clear_cache
        self.engine.pause(mode)
        if self.hangs == "pause_generation":
            await asyncio.Event().wait()

    async def wake_up(self, tags: list[str]) -> None:
        self.engine.wake(tags)


class Server(http.server.ThreadingHTTPServer):
    """`vllm serve`. lacks: a path that it does not know. hangs: one that it does not answer until
    `silent` is set. late: one that it reads when it has answered that it was resumed. away: it
    answers 503."""

    daemon_threads = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine
        self.lacks = self.hangs = self.late = ""
        self.away = False
        self.silent, self.resumed = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


@contextlib.contextmanager
def serving(engine: Engine) -> Iterator[Server]:
    with Server(engine) as found:
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield found
        found.silent.set()
        found.shutdown()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        content = self.rfile.read(int(self.headers["Content-Length"]))
        assert parts.path in gate.PASSING  # so that a standby is switched too
        if parts.path == self.server.hangs:
            self.server.silent.wait(60)
            return
        if parts.path == self.server.lacks or self.server.away:
            self.send_error(503 if self.server.away else 404)
            return
        if parts.path == self.server.late:
            self.server.resumed.wait(60)
        code, text = 200, b""
        try:
            if parts.path == "/collective_rpc":
                body = json.loads(content)
                assert set(body) == {"method", "args"}
                found = self.server.engine.answers(body["method"], tuple(body["args"]))
                text = json.dumps({"results": found}).encode()
            elif parts.path == "/pause":
                assert query == {"mode": query["mode"], "clear_cache": "true"}
                self.server.engine.pause(query["mode"])
            elif parts.path == "/sleep":
                assert set(query) == {"level", "mode"}
                self.server.engine.sleep(int(query["level"]), query["mode"])
            else:
                assert parts.path == "/wake_up"
                self.server.engine.wake([query["tags"]])
        except Exception as error:
            code, text = 500, str(error).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        if parts.path == "/wake_up":
            self.server.resumed.set()

    def do_GET(self) -> None:
        assert self.path == "/is_sleeping"
        assert self.path in gate.PASSING
        if self.path == self.server.hangs:
            self.server.silent.wait(60)
            return
        text = json.dumps({"is_sleeping": self.server.engine.paused}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


def switch(engine: Engine, **options: Any) -> gpuwm.vllm.Switched:
    return gpuwm.vllm.switch(Offline(engine), "llama@v2", **options)


# ---- fixtures -----------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def server(engine: Engine) -> Iterator[Server]:
    with serving(engine) as found:
        yield found
