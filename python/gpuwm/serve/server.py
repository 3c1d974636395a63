"""gpuwm-serve from its start to its end: what it listens at, and what it has started."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import logging
import math
import os
import pathlib
import resource
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from aiohttp import web

import gpuwm

from .. import errors
from . import decision, gpuwmd, models
from .commands import Commands
from .metrics import Metrics
from .models import Config
from .proxy import HEAD_S, Proxy
from .supervisor import Group, end_strays
from .turns import Turns

log: logging.Logger = logging.getLogger("gpuwm.serve")

BACKLOG = 4096  # connections that wait to be accepted, as many as the kernel takes
KEEPALIVE_S = 75.0  # of a client's connection between two requests
FILES = 256  # that it has open besides those of clients: sockets and pidfds of engines
# Of [serve], what no reload changes: sockets are open by then, and limits are set.
FIXED = ("listen", "folder", "body_bytes", "connections")
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


# ---- before it starts ----------------------------------------------------------------------------


class Gpuwmd(NamedTuple):
    """A connection to gpuwmd, and whether it had to be started."""

    client: gpuwm.Client
    started: bool


class Start:
    """What gpuwm-serve was started with: read once, and again at each reload.

    - config: with all that models.toml left out.
    - gpuwmd: None: no engine uses it, and the size of all devices is given.
    """

    def __init__(self, words: Sequence[str], listen: str | None) -> None:
        """words: models.toml, or names of models. Raises Invalid, Unreachable."""
        self._words, self._listen = words, listen
        config = self._read()
        self.gpuwmd: Gpuwmd | None = Gpuwmd(*gpuwmd.connect()) if _needs_gpuwmd(config) else None
        self.config: Config = self._complete(config)

    def _read(self) -> Config:
        words = self._words
        if len(words) == 1 and (words[0].endswith(".toml") or os.path.isfile(words[0])):
            config = models.read(words[0])
        else:
            config = models.of_names(words)
        if self._listen:
            config = dataclasses.replace(config, listen=models.listen(self._listen))
        return config

    def _complete(self, config: Config) -> Config:
        if self.gpuwmd is not None:
            missing = _devices(config) - config.budgets.keys()
            budgets = {**gpuwmd.budgets(self.gpuwmd.client, missing), **config.budgets}
            names = {model.version for model in config.models.values()} - {""}
            ids = {name: gpuwmd.version_id(self.gpuwmd.client, name) for name in names}
            config = dataclasses.replace(config, budgets=budgets, ids=ids)
        return models.complete(config)

    def again(self) -> Config:
        """What models.toml says now. Raises Invalid, which names what is wrong: `config` stays."""
        found = self._read()
        for key in FIXED:
            if getattr(found, key) != getattr(self.config, key):
                raise errors.Invalid(f"serve.{key} changes only with a start of gpuwm-serve")
        if self.gpuwmd is None and _needs_gpuwmd(found):
            raise errors.Invalid("engines need gpuwmd now", "start gpuwm-serve again")
        found = self._complete(found)
        wrong = problems(found)
        if wrong:
            raise errors.Invalid("; ".join(wrong))
        self.config = found
        return found


def _needs_gpuwmd(config: Config) -> bool:
    missing = _devices(config) - config.budgets.keys()
    return bool(missing) or any(
        model.version or model.engine != models.COMMAND for model in config.models.values()
    )


def _devices(config: Config) -> set[str]:
    return {device for model in config.models.values() for device in model.devices}


def problems(config: Config) -> list[str]:
    """What would not fit or not work."""
    never = decision.never_fits(config.models.values(), config.budgets)
    return [
        *models.problems(config),
        *(
            f"models.{model.name}: gpuwmd has no version {model.version} that is ready"
            for model in config.models.values()
            if model.version and not config.ids.get(model.version)
        ),
        *_files_missing(config),
        *(f"models.{name}: {why}" for name, why in never.items()),
    ]


def _files_missing(config: Config) -> list[str]:
    """A client that waits for an answer takes two descriptors: its own, and one to the engine."""
    need, most = 2 * config.connections + FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if need <= most:
        return []
    return [
        f"serve.connections: {config.connections} clients take {need} files, and a process has "
        f"{most} at most: raise the hard limit (ulimit -Hn), or lower serve.connections"
    ]


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


def serve(start: Start, standby: bool) -> None:
    """Serves until SIGTERM or SIGINT, as the only one that decides. standby: it waits until the one
    that does has ended. Raises Busy, and the errors of gpuwmd.decides."""
    config, found = start.config, start.gpuwmd
    folder = config.runtime_folder()
    with _alone(folder, standby):
        if found is not None and not gpuwmd.decides(found.client, math.inf if standby else 0):
            raise errors.Busy(
                "another gpuwm-serve decides for this gpuwmd", "end it, or wait for it: --standby"
            )
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        asyncio.run(_run(start, folder))
    if found is not None and found.started:
        gpuwmd.stop()


async def _run(start: Start, folder: pathlib.Path) -> None:
    metrics, config = Metrics(), start.config
    turns = Turns(config, lambda model, on_lost: Group(model, folder, on_lost), metrics)
    metrics.watch(turns)
    proxy, stopped = Proxy(turns, metrics), asyncio.Event()
    commands = Commands(proxy, start.again)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, commands.begin_reload)
    async with _listening(proxy, commands, config, folder) as port:
        log.info("gpuwm-serve listens at %s:%d", config.listen[0], port)
        calls = (stopped.wait(), _take_turns(turns, config, folder), _follow(start, turns))
        tasks = [asyncio.create_task(call) for call in calls]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await turns.end()
    for task in done:
        task.result()


async def _take_turns(turns: Turns, config: Config, folder: pathlib.Path) -> None:
    known = {path for m in config.models.values() for path in models.sockets(folder, m)}
    await asyncio.to_thread(end_strays, folder, known)
    await turns.run()


async def _follow(start: Start, turns: Turns) -> None:
    """Follows what happens at gpuwmd, until it is cancelled. Raises Busy if this process decides no
    longer."""
    if start.gpuwmd is None:
        await asyncio.Event().wait()
        return
    client = start.gpuwmd.client
    async for moved in gpuwmd.watch(client):
        if not moved and not await asyncio.to_thread(gpuwmd.still_decides, client):
            raise errors.Busy(
                "another gpuwm-serve decides for this gpuwmd since that was started anew",
                "engines that this one has started end",
            )
        for name in turns.versions() & {moved} if moved else turns.versions():
            turns.moved(name, await asyncio.to_thread(gpuwmd.version_id, client, name))


@contextlib.contextmanager
def _alone(folder: pathlib.Path, standby: bool) -> Iterator[None]:
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
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if standby else fcntl.LOCK_NB))
        except BlockingIOError:
            raise errors.Busy(
                f"another gpuwm-serve uses {folder}",
                "end it, wait for it (--standby), or set serve.folder to another one",
            ) from None
        yield
    finally:
        os.close(lock)


@contextlib.asynccontextmanager
async def _listening(
    proxy: Proxy, commands: Commands, config: Config, folder: pathlib.Path
) -> AsyncIterator[int]:
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
    try:
        async with commands.listening(folder):
            yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await runner.cleanup()


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
