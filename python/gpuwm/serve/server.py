"""gpuwm-serve from its start to its end: what it listens at, and what it has started."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import logging
import os
import pathlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
from aiohttp import web

from .. import errors
from . import decision, gpuwmd, models
from .metrics import Metrics
from .models import Config
from .proxy import HEAD_S, Proxy
from .supervisor import Group, end_strays
from .turns import Turns

log: logging.Logger = logging.getLogger("gpuwm.serve")

BACKLOG = 4096  # connections that wait to be accepted, as many as the kernel takes
KEEPALIVE_S = 75.0  # of a client's connection between two requests
CONTROL = "control"  # the socket of this user's commands, in the runtime folder
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


# ---- before it starts ----------------------------------------------------------------------------


def complete(config: Config) -> tuple[Config, bool]:
    """The configuration with all that was left out; whether gpuwmd had to be started for it."""
    devices = {device for model in config.models.values() for device in model.devices}
    missing = devices - config.budgets.keys()
    started = False
    if missing or any(model.engine != models.COMMAND for model in config.models.values()):
        client, started = gpuwmd.connect()
        with client:
            budgets = {**gpuwmd.budgets(client, missing), **config.budgets}
        config = dataclasses.replace(config, budgets=budgets)
    return models.complete(config), started


def problems(config: Config) -> list[str]:
    """What would not fit or not work."""
    never = decision.never_fits(config.models.values(), config.budgets)
    return [*models.problems(config), *(f"models.{name}: {why}" for name, why in never.items())]


def table(config: Config) -> str:
    """The models, and how long a request of each may wait."""
    rows = [("MODEL", "ENGINE", "DEVICES", "MEMORY", "WAITS ALONE", "WAITS AT MOST")]
    for name, model in config.models.items():
        found = decision.bound(name, config.models.values(), config.budgets)
        memory = f"{(model.memory or 0) / models.GIB:.1f} GiB"
        alone, worst = f"{found.alone:.0f} s", f"{found.worst:.0f} s"
        rows.append((name, model.engine, ",".join(model.devices), memory, alone, worst))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


# ---- while it runs -------------------------------------------------------------------------------


async def run(
    config: Config, started: bool = False, ready: Callable[[int], None] | None = None
) -> int:
    """Serves until SIGTERM or SIGINT. started: gpuwmd ends with it. ready: is told the port."""
    folder = config.runtime_folder()
    with _alone(folder):
        metrics = Metrics()
        turns: Turns
        groups = {
            name: Group(model, folder, lambda name: turns.lost(name))
            for name, model in config.models.items()
        }
        end_strays(
            folder, {engine.place.socket for group in groups.values() for engine in group.engines}
        )
        turns = Turns(config, groups, metrics)
        metrics.watch(turns)
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        async with _listening(Proxy(turns, metrics), config, folder) as port:
            running = asyncio.create_task(turns.run())
            log.info("gpuwm-serve listens at %s:%d", config.listen[0], port)
            if ready is not None:
                ready(port)
            stopping = asyncio.create_task(stopped.wait())
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await asyncio.gather(*(group.end() for group in groups.values()))
    if started:
        gpuwmd.stop()
    return 0


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """The folder of sockets and logs, which one gpuwm-serve has at a time and other users don't
    see. Raises Busy, and Refused if the folder is another user's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise errors.Refused(
            f"{folder} belongs to user {status.st_uid} and has mode {status.st_mode & 0o777:o}",
            "others may not enter it: set serve.folder to a folder of yours of mode 0700",
        )
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.Busy(
                f"another gpuwm-serve uses {folder}", "end it, or set serve.folder to another one"
            ) from None
        yield
    finally:
        os.close(lock)


@contextlib.asynccontextmanager
async def _listening(proxy: Proxy, config: Config, folder: pathlib.Path) -> AsyncIterator[int]:
    """The port, while clients and this user's commands are served."""
    # It tells of each request that is no HTTP, with a traceback: what clients send fills no log.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    runner = web.AppRunner(
        proxy.application(),
        handler_cancellation=True,
        auto_decompress=False,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
    )
    await runner.setup()
    assert runner.server is not None
    front = _Front(runner.server, config.connections)
    proxy.on_request = front.note
    host, port = config.listen
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(front.accept, host, port, backlog=BACKLOG)
    except OSError as error:
        raise errors.Unreachable(
            f"can't listen at {host}:{port}: {error.strerror}", "set serve.listen"
        ) from None
    path = folder / CONTROL
    path.unlink(missing_ok=True)
    commands = web.AppRunner(proxy.commands(), handler_cancellation=True, access_log=None)
    await commands.setup()
    await web.UnixSite(commands, str(path)).start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await runner.cleanup()
        await commands.cleanup()


class _Front:
    """Connections of clients: not too many, and none that asks nothing."""

    def __init__(self, server: web.Server, most: int) -> None:
        self._server, self._most = server, most
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}

    def accept(self) -> asyncio.BaseProtocol:
        if len(self._server.connections) >= self._most:
            return _Full()
        made = self._server()
        loop = asyncio.get_running_loop()
        self._silent[made] = loop.call_later(HEAD_S, self._close, made)
        return made

    def note(self, request: web.Request) -> None:
        """The connection of the request has asked something."""
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()

    def _close(self, made: web.RequestHandler) -> None:
        del self._silent[made]
        if made.transport is not None:
            made.transport.abort()


class _Full(asyncio.Protocol):
    """Says that there are too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(FULL)
        transport.close()


# ---- its commands --------------------------------------------------------------------------------


async def ask_to_wake(folder: pathlib.Path | str, name: str, wait: bool, limit: float) -> str:
    """Has the gpuwm-serve of this folder wake a model. Returns what to print. Raises Unreachable
    and Error."""
    path = pathlib.Path(folder) / CONTROL
    timeout = aiohttp.ClientTimeout(total=limit)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
            session.post(
                "http://serve/wake", json={"model": name, "wait": wait}, timeout=timeout
            ) as answer,
        ):
            found = await answer.json()
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Unreachable(
            f"no gpuwm-serve listens at {path}: {error}", "start it, or name its --folder"
        ) from None
    if answer.status != 200:
        raise errors.Error(found["error"]["message"])
    return str(found["state"])
