"""Commands of this user for the gpuwm-serve that runs: both sides. They pass through a socket in
the runtime folder, which nobody else reaches.

    POST /wake {"model": "small", "wait": true}
    POST /reload {}
    {"said": "awake"}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from .. import errors
from .models import Config
from .proxy import Problem, Proxy, not_served
from .turns import NotServed

log: logging.Logger = logging.getLogger("gpuwm.serve")

SOCKET = "control"


class Commands:
    """read: what models.toml says now; it raises the errors of models.read, and others of what
    would not work. It may block."""

    def __init__(self, proxy: Proxy, read: Callable[[], Config]) -> None:
        self._proxy, self._read = proxy, read
        self._one = asyncio.Lock()  # reload at a time
        self._reloads: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self, folder: pathlib.Path) -> AsyncIterator[None]:
        made = web.Application()
        made.router.add_post("/wake", self._wake)
        made.router.add_post("/reload", self._reload)
        runner = web.AppRunner(made, handler_cancellation=True, access_log=None)
        await runner.setup()
        path = folder / SOCKET
        path.unlink(missing_ok=True)
        await web.UnixSite(runner, str(path)).start()
        try:
            yield
        finally:
            await runner.cleanup()

    # ---- wake ----

    async def _wake(self, request: web.Request) -> web.Response:
        """The decision without the proxy."""
        asked = await request.json()
        name, turns = asked["model"], self._proxy.turns
        try:
            self._proxy.known(name)
            if asked["wait"]:
                async with turns.turn(name):
                    pass
            else:
                turns.want(name)
        except Problem as problem:
            return problem.answer()
        except NotServed as error:
            return not_served(error).answer()
        return web.json_response({"said": turns.standing(name).state.value})

    # ---- reload ----

    def begin_reload(self) -> None:
        """For a signal. The log says what came of it."""
        task = asyncio.get_running_loop().create_task(self._reload_or_log())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload_or_log(self) -> None:
        with contextlib.suppress(errors.Error):
            await self.reload()

    async def _reload(self, request: web.Request) -> web.Response:
        try:
            names = await self.reload()
        except errors.Error as error:
            return Problem(400, str(error)).answer()
        return web.json_response({"said": f"serves {', '.join(names)}"})

    async def reload(self) -> list[str]:
        """The names of the models that there are now. If it fails, nothing has changed."""
        async with self._one:
            try:
                config = await asyncio.to_thread(self._read)
            except errors.Error as error:
                log.error("the models stay as they are: %s", error)
                raise
            self._proxy.turns.reload(config)
        log.info("models.toml was read again: there are %s", ", ".join(config.models))
        return list(config.models)


# ---- the other side ------------------------------------------------------------------------------


async def ask(folder: pathlib.Path | str, what: str, asked: Mapping[str, Any], limit: float) -> str:
    """Has the gpuwm-serve of this folder do something. Returns what to print. Raises Unreachable
    and Error."""
    path = pathlib.Path(folder) / SOCKET
    timeout = aiohttp.ClientTimeout(total=limit)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
            session.post(f"http://serve/{what}", json=asked, timeout=timeout) as answer,
        ):
            found = await answer.json()
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Unreachable(
            f"no gpuwm-serve listens at {path}: {error}", "start it, or name its --folder"
        ) from None
    if answer.status != 200:
        raise errors.Error(found["error"]["message"])
    return str(found["said"])
