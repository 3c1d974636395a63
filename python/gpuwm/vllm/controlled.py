"""Lets an operator park, wake and switch a server of vLLM, without vLLM's routes for development.

    vllm serve MODEL … --enable-sleep-mode --middleware gpuwm.vllm.Control
    python -m gpuwm.engines park http://localhost:8000

The middleware (ASGI) runs in the engine's API server. It listens where `gpuwm.engines.control`
says, and at the server's port it tells nothing but its pid. With GPUWM_PARK_WHEN_WANTED it also
parks a server that nobody uses when another engine wants its room (`gpuwm.vllm.wanted`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

from .. import errors
from ..engines import control
from . import wanted
from ._switch import StillPaused, switch_async
from .gate import App, Receive, Scope, Send, ask_ranks, respond

log: logging.Logger = logging.getLogger("vllm.gpuwm")

SCHEDULING = ["scheduling"]  # the tag that wakes vLLM's scheduler alone


class Control:
    """For `--middleware gpuwm.vllm.Control`. The module's docstring says what it does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._one: asyncio.Lock = asyncio.Lock()
        self._idle: wanted.Idle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(scope, receive, send)
        elif kind == "http" and scope["path"].removeprefix(scope.get("root_path", "")) == (
            control.PATH
        ):
            await respond(send, 200, {"pid": os.getpid()})
        elif kind == "http" and scope.get("method") == "POST" and self._idle is not None:
            await self._request(self._idle, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, idle: wanted.Idle, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(idle.request())
            except Exception as error:  # vLLM's own errors have no common base class
                log.warning(
                    "gpuwm: a request found the engine parked, and it can't wake: %s", error
                )
                await respond(send, 503, {"error": f"the engine sleeps, and can't wake: {error}"})
                return
            await self._app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs from the API server's start to its end."""
        client = scope["app"].state.engine_client

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(client, reader, writer)

        server = await asyncio.start_unix_server(
            serve, control.socket_name(os.getpid()), limit=control.LINE_MAX
        )
        async with server, self._watching(client):
            await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _watching(self, client: Any) -> AsyncIterator[None]:
        """Inside, the server makes way for others when it is idle, if it shall."""
        seconds = wanted.idle_seconds(getattr(client, "vllm_config", None))
        if seconds is None:
            yield
            return
        request = {"do": control.PARK, "mode": control.KEEP}
        self._idle = wanted.Idle(
            seconds, self._one, lambda: _do(client, request), lambda: _wake(client)
        )
        watch = asyncio.create_task(self._idle.watch(client))
        try:
            yield
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _serve(
        self, client: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            # uvloop's object does not tell who the other side is
            number = writer.get_extra_info("socket").fileno()
            with socket.fromfd(number, socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                if not control.is_ours(connection):
                    return
            answer = await self._answer(client, await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError) as error:  # a caller that has gone, or sends too much
            log.warning("gpuwm: a caller of gpuwm.engines: %s", error)
        finally:
            writer.close()

    async def _answer(self, client: Any, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if self._one.locked():
                raise errors.Busy("another park or wake of this engine has not ended", "wait")
            async with self._one:
                begin = time.monotonic()
                if request["do"] == control.SWITCH:
                    found = await _switch(client, request["ref"])
                    return {"seconds": time.monotonic() - begin, **found}
                did = await _do(client, request)
                if self._idle is not None:
                    self._idle.parked = False  # from now on it is the operator's
                return {"seconds": time.monotonic() - begin, "did": did}
        except Exception as error:  # it is the caller's
            log.warning("gpuwm: a call of gpuwm.engines failed: %s", error)
            return {
                "error": type(error).__name__,
                "message": getattr(error, "message", f"{type(error).__name__}: {error}"),
                "detail": getattr(error, "detail", "the engine's log says why"),
            }


async def _switch(client: Any, ref: str) -> dict[str, Any]:
    try:
        found = await switch_async(client, ref)
    except StillPaused:
        found = await switch_async(client, ref, take_over=True)
    return {"did": found.moved, "version": found.version, "id": found.id}


async def _do(client: Any, request: dict[str, Any]) -> bool:
    """Whether there was anything to do."""
    asleep = any(rank["asleep"] for rank in await ask_ranks(client, "gpuwm_asleep"))
    if request["do"] == control.WAKE:
        stopped = bool(await client.is_sleeping())
        await client.wake_up()
        return stopped
    if asleep:
        return False
    if await client.is_sleeping():
        raise errors.Busy("the engine is paused", "resume it first")
    await _park(client, request["mode"], request.get("drain") or control.DRAIN_S)
    return True


async def _wake(client: Any) -> None:
    await client.wake_up()


async def _park(client: Any, mode: str, drain: float) -> None:
    """If it fails, the engine serves."""
    try:
        if mode == control.WAIT:
            # Without memory that sleeps: requests that come meanwhile wait.
            await asyncio.wait_for(client.sleep(level=0, mode=control.WAIT), drain)
        await client.sleep(level=1, mode=control.ABORT if mode == control.ABORT else control.KEEP)
    except BaseException as error:
        await client.wake_up(tags=SCHEDULING)
        if isinstance(error, asyncio.TimeoutError):
            raise errors.TimedOut(
                f"requests were still in flight after {drain:g} s", "give it longer (--drain)"
            ) from None
        raise
