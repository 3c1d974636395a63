"""The gate before an engine of a group: no request passes until the engine is the active one.

    vllm serve MODEL … --middleware gpuwm.vllm.gate.Gate

`python -m gpuwm.vllm standby` starts an engine with it. The gate is a middleware (ASGI) in the
engine's API server. It runs this engine's part in the group (`gpuwm.vllm.standby`) in a thread.
When the engine has become the active one, the gate lets the ranks give their KV cache its memory.

| | closed | open |
|---|---|---|
| GET /gpuwm/standby | 200, what `Gate._report` returns | the same |
| /metrics, /version, and what a switch to other weights uses | pass | pass |
| /health, /ping and everything else | 503, {"state": …}, Retry-After | pass |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .. import errors
from . import processes, serving_arguments, standby
from .answers import Answer

log: logging.Logger = logging.getLogger("vllm.gpuwm")

STARTING, STANDBY, TAKING_OVER, ACTIVE, ENDED = (
    "starting",
    "standby",
    "taking over",
    "active",
    "ended",
)
REPORT = "/gpuwm/standby"
# Routes of vLLM's development mode. With these `gpuwm.vllm switch` and `follow` keep a standby on
# the weights of the active engine. /resume is not among them: it is for operators.
_SWITCHING = ("/collective_rpc", "/is_sleeping", "/sleep", "/wake_up", "/pause", "/resume")
PASSING = frozenset(["/metrics", "/metrics/", "/version", *_SWITCHING])
RETRY_AFTER_S = 1
TRY_AGAIN_LATER = 1013  # close code of a WebSocket
# How long ranks may take to say which process they are: they answer between two steps.
ANSWER_S = 60.0
# How long to wait for the memory of an engine that was killed. It comes back within some hundred
# milliseconds.
OCCUPY_S = 2.0
# How much longer ranks may take to answer: to map and clear memory takes a fraction of a second.
ANSWERED_S = 3.0
FAILED = 1  # an exit status

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gate:
    """For `--middleware gpuwm.vllm.gate.Gate`. The module's docstring says what it does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._group: standby.Group | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn(STARTING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == REPORT and kind == "http":
            await respond(send, 200, self._report())
        elif self._is_open or path in PASSING:
            await self._app(scope, receive, send)
        elif kind == "http":
            await respond(send, 503, {"state": self._state})
        else:
            await receive()  # the first message: a client wants to connect
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    def _turn(self, state: str) -> None:
        self._state, self._since = state, time.time()
        self._is_open = state == ACTIVE

    def _report(self) -> dict[str, Any]:
        """The state of this engine: `state`, and `since` when (seconds since 1970). `active`: the
        record of the engine that is active as far as this one knows, or None. Of this engine's
        takeover: `moments` (CLOCK_MONOTONIC) at which each step was done, and `seconds` that each
        step took."""
        found: dict[str, Any] = {"state": self._state, "since": self._since, "active": None}
        if self._group is not None:
            found["active"] = standby.plain(self._group.active)
            found["moments"] = self._group.moments()
            found["seconds"] = self._group.seconds()
        return found

    # ---- the engine's part in its group ----

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs from the API server's start to its end."""
        state = scope["app"].state
        self._task = asyncio.create_task(self._stand(state))
        try:
            await self._app(scope, receive, send)
        finally:
            self._task.cancel()

    async def _stand(self, state: Any) -> None:
        client = state.engine_client
        try:
            path = serving_arguments.check(state)
            server = processes.this(processes.API_SERVER)
            self._group = standby.Group(path, server, await _below(server, client))
            self._turn(STANDBY)
            await _in_thread(self._group.join)
            await self._take_over(client)
            await _in_thread(self._group.serve)
            log.warning("gpuwm: a process of this engine has ended, so it has left %s", path)
        except errors.Lost as error:
            log.warning("gpuwm: %s", error)  # vLLM has ended the API server, or is about to
        except Exception as error:
            self._fail(error, client)
        self._turn(ENDED)

    async def _take_over(self, client: Any) -> None:
        assert self._group is not None
        self._turn(TAKING_OVER)
        gone = asyncio.create_task(_in_thread(self._group.wait_until_gone))
        try:
            answers = await _occupy(client)
        except errors.NoRoom:
            await gone  # a process that ended late had the GPU's memory until now
            answers = await _occupy(client)
        self._group.note(standby.OCCUPIED)
        await gone
        self._turn(ACTIVE)
        self._group.note(standby.OPENED)
        log.warning(
            "gpuwm: this engine is the active one of %s, with %.2f GiB of KV cache: %s",
            self._group.path,
            sum(answer.get("bytes", 0) for answer in answers) / (1 << 30),
            ", ".join(f"{what} {1e3 * s:.1f} ms" for what, s in self._group.seconds().items()),
        )

    def _fail(self, error: Exception, client: Any) -> None:
        """Ends this engine, so that another one gets the lock and a supervisor starts this one
        again."""
        known = isinstance(error, errors.Error)
        log.error("gpuwm: this engine ends: %s", error, exc_info=None if known else error)
        # Perhaps nobody has told the ranks to end with this process, but they end with their core.
        with contextlib.suppress(errors.Error), processes.Watch(_cores(client)) as cores:
            cores.kill(cores.living)
        with contextlib.suppress(errors.Error):
            if self._group is not None:
                self._group.end()
        logging.shutdown()
        os._exit(FAILED)  # vLLM's own exit would keep the lock for seconds


def _cores(client: Any) -> list[processes.Process]:
    """The engine core, from vLLM's client."""
    resources = getattr(getattr(client, "engine_core", None), "resources", None)
    children = getattr(getattr(resources, "engine_manager", None), "processes", [])
    stats = [(child.pid, processes.stat_of(child.pid)) for child in children]
    return [
        processes.Process(processes.CORE, pid, stat.started)
        for pid, stat in stats
        if stat is not None
    ]


async def _below(server: processes.Process, client: Any) -> list[processes.Process]:
    """The processes of the engine below its API server. From now on they end with it."""
    found = processes.of_ranks(server, await ask_ranks(client, "gpuwm_process"))
    await ask_ranks(client, "gpuwm_end_with", str(server.pid), str(server.started))
    # If a fork server starts the engine core, the core is not a parent of the ranks.
    numbers = {process.pid for process in found}
    return [*(core for core in _cores(client) if core.pid not in numbers), *found]


async def _occupy(client: Any) -> list[Answer]:
    """Gives the ranks' KV caches their memory. If a rank hangs, this ends soon, so that another
    standby gets the lock."""
    return await ask_ranks(client, "gpuwm_occupy", str(OCCUPY_S), seconds=OCCUPY_S + ANSWERED_S)


async def ask_ranks(
    client: Any, method: str, *arguments: str, seconds: float | None = None
) -> list[Answer]:
    """The answers of all ranks, if none failed. seconds: ANSWER_S."""
    seconds = ANSWER_S if seconds is None else seconds
    try:
        call = client.collective_rpc(method, args=arguments)
        answers: list[Answer] = await asyncio.wait_for(call, seconds)
    except asyncio.TimeoutError:
        raise errors.TimedOut(
            f"the ranks did not answer {method} within {seconds:g} s", "does one hang?"
        ) from None
    except Exception as error:  # vLLM's own errors have no common base class
        raise errors.Error(
            f"the ranks could not {method}: {type(error).__name__}: {error}",
            f"see the engine's log; the engine needs --worker-cls {serving_arguments.WORKER}",
        ) from error
    for answer in answers:
        if "error" in answer:
            kind = errors.NoRoom if answer["error"] == "NoRoom" else errors.Error
            raise kind(
                f"rank {answer['rank']} could not {method}: {answer['error']}: {answer['message']}",
                answer.get("detail", ""),
            )
    return answers


async def _in_thread(call: Callable[[], None]) -> None:
    """Runs a call that blocks, in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if done.done():
            return  # it was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        failed: BaseException | None = None
        try:
            call()
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, failed)

    threading.Thread(target=run, name="gpuwm-standby", daemon=True).start()
    await done


async def respond(send: Send, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status != 200:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
