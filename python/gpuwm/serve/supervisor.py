"""The processes of engines: started, found again, asked to park and to wake, ended.

An engine listens at a Unix socket in a folder of this user's, or at a port of loopback with a key
that nobody else knows. One that listens at a socket goes on if gpuwm-serve is killed, and the next
gpuwm-serve finds it there: the kernel says which process listens. No file says what runs, so none
can be wrong. One that listens at a port ends with gpuwm-serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import pathlib
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError
from aiohttp.client_proto import ResponseHandler

from .. import errors
from ..engines import control
from . import models
from .models import Model

log: logging.Logger = logging.getLogger("gpuwm.serve")

# Between two looks whether an engine that starts serves already.
LOOK_S = 0.02
LOOK_MOST_S = 0.5
HEALTH_S = 5.0  # for one answer; an engine that starts may not answer for long
# From SIGTERM to SIGKILL: vLLM ends within a second, and a worker that hangs never.
END_S = 10.0
LOG_SHOWN_BYTES = 2000  # of the log of an engine that did not start
CONNECT_AGAIN_S = 0.01  # while an engine accepts no more connections
HEADER_BYTES = 1 << 16  # of an engine's answer
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


OnLost = Callable[["Group"], None]


class Engine:
    """One process. in_flight: requests that it has. `on_exit` is called when it has ended without
    having been asked to, or somebody found that it listens no longer (`lost`)."""

    def __init__(
        self, model: Model, number: int, folder: pathlib.Path, on_exit: Callable[[Engine], None]
    ) -> None:
        self.model: Model = model
        self.number: int = number
        self.in_flight = 0
        self.version_id: str = ""  # that it is on; "": nobody has asked since it started
        self.place: models.Place = models.place(folder, model, number)
        self.headers: Mapping[str, str] = {}
        self.url: str = "http://engine"
        self.lost: Callable[[], None] = lambda: on_exit(self)
        self.pid: int = 0
        self._pidfd = -1
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = asyncio.Event()
        self._ended.set()
        self._session: aiohttp.ClientSession | None = None
        self._asked_to_end = False

    def __str__(self) -> str:
        return f"{self.model.name}.{self.number}"

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "the engine runs"
        return self._session

    # ---- start ----

    async def find(self) -> bool:
        """Whether it runs already, since an earlier gpuwm-serve has started it."""
        pid = listener(self.place.socket) if models.uses_socket(self.model) else 0
        if pid:
            log.info("%s runs already: pid %d", self, pid)
            self._watch(pid, None)
            self._connect("", "")
        return bool(pid)

    async def start(self) -> None:
        """Starts it, if it does not run. It is awake then.

        Raises NotFound, TimedOut (it does not serve within `start`) and Lost (it ended meanwhile);
        it has ended then."""
        if self.is_running:
            return
        key = port = ""
        if models.uses_socket(self.model):
            self.place.socket.unlink(missing_ok=True)
        else:
            key, port = secrets.token_urlsafe(32), str(_free_port())
        child = self._spawn(key, port)
        log.info("%s starts: pid %d, log %s", self, child.pid, self.place.log)
        self._watch(child.pid, child)
        self._connect(key, port)
        await self._check()

    def _spawn(self, key: str, port: str) -> subprocess.Popen[bytes]:
        words = command(self.model, self.place, port)
        if self.model.engine == models.SGLANG:
            with open(self.place.config, "w", opener=_private) as config:
                config.write(f"api-key: {key}\n")
        environment = {**os.environ, **environment_of(self.model, key)}
        environment[SOCKET] = str(self.place.socket)
        with open(self.place.log, "ab", opener=_private) as file:
            try:
                return subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=_end_with_parent if port else None,
                )
            except OSError as error:
                raise errors.NotFound(
                    f"{self} can't be started: {words[0]}: {error.strerror}",
                    "install the engine, or name its program in models.toml",
                ) from None

    def _connect(self, key: str, port: str) -> None:
        # A connection for each request: a POST on one that the engine is about to close could not
        # be sent again, since nobody knows whether the engine has read it.
        connector: aiohttp.BaseConnector
        if port:
            connector = aiohttp.TCPConnector(force_close=True, limit=0)
            self.url = f"http://127.0.0.1:{port}"
            self.headers = {"Authorization": f"Bearer {key}"}
        else:
            connector = _Sockets(str(self.place.socket), force_close=True, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=None),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )

    async def _check(self) -> None:
        """Returns when the engine serves."""
        try:
            await asyncio.wait_for(self._serves(), self.model.start)
        except asyncio.TimeoutError:
            await self.end()
            raise errors.TimedOut(
                f"{self} did not serve within {self.model.start:g} s",
                f"its log {self.place.log} says what it does; set start in models.toml",
            ) from None
        except BaseException:
            await self.end()
            raise

    async def _serves(self) -> None:
        pause = LOOK_S
        while self.is_running:
            if await self._is_healthy():
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LOOK_MOST_S)
        raise errors.Lost(
            f"{self} ended while it started", f"its log {self.place.log}: {self._log_end()}"
        )

    async def _is_healthy(self) -> bool:
        limit = aiohttp.ClientTimeout(total=HEALTH_S)
        try:
            async with self.session.get(
                self.url + self.model.health, headers=self.headers, timeout=limit
            ) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError):
            return False

    def _log_end(self) -> str:
        try:
            text = self.place.log.read_bytes()[-LOG_SHOWN_BYTES:].decode(errors="replace")
        except OSError as error:
            return str(error.strerror)
        return text.strip().rpartition("\n")[2]

    # ---- its end ----

    def _watch(self, pid: int, child: subprocess.Popen[bytes] | None) -> None:
        self.pid, self._child = pid, child
        self._pidfd = os.pidfd_open(pid)
        self._asked_to_end = False
        self.version_id = ""
        self._ended.clear()
        asyncio.get_running_loop().add_reader(self._pidfd, self._note_exit)

    def _note_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = "another program's child"
        if self._child is not None:
            # As long as nobody has waited for the process, its number is its group's alone.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            code = self._child.wait()
            status = f"status {code}" if code >= 0 else f"signal {-code}"
        self._ended.set()
        session, self._session = self._session, None
        if session is not None:
            _tasks.add(task := asyncio.ensure_future(session.close()))
            task.add_done_callback(_tasks.discard)
        if not self._asked_to_end:
            log.warning("%s (pid %d) has ended: %s", self, self.pid, status)
            self.lost()

    async def end(self) -> None:
        """Ends it with all of its processes. Does nothing if it has ended."""
        if not self.is_running:
            return
        self._asked_to_end = True
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._ended.wait(), END_S)
        except asyncio.TimeoutError:
            self._signal(signal.SIGKILL)
            await self._ended.wait()
        log.info("%s was ended", self)

    def _signal(self, number: int) -> None:
        # Its number is not another process's as long as the pidfd says that it runs.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    # ---- sleep ----

    async def park(self) -> None:
        """Raises the errors of gpuwm.engines.control.park."""
        await asyncio.to_thread(control.park, str(self.pid))

    async def wake(self) -> None:
        await asyncio.to_thread(control.wake, str(self.pid))

    async def switch(self) -> None:
        """Moves it to the version that the model's alias names now. Raises the errors of
        gpuwm.engines.control.switch."""
        found = await asyncio.to_thread(control.switch, str(self.pid), self.model.version)
        self.version_id = str(found["id"])
        if found["did"]:
            log.info("%s is on %s now, after %.3f s", self, found["version"], found["seconds"])


_tasks: set[asyncio.Future[None]] = set()  # the loop keeps no reference to them


class _Sockets(aiohttp.UnixConnector):
    """Connects to an engine's socket, and waits while the engine has too many connections that it
    has not accepted. The kernel refuses more with EAGAIN, which asyncio takes for a connection that
    is being made: requests on it would fail."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        while True:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                made.connect(self.path)
                break
            except BlockingIOError:
                made.close()
                await asyncio.sleep(CONNECT_AGAIN_S)
            except OSError as error:
                made.close()
                raise UnixClientConnectorError(self.path, req.connection_key, error) from error
        _, protocol = await self._loop.create_unix_connection(self._factory, sock=made)
        return protocol


class Group:
    """The engines of a model. on_lost: is called when one of them has ended by itself."""

    def __init__(self, model: Model, folder: pathlib.Path, on_lost: OnLost) -> None:
        self.model: Model = model
        self.engines: list[Engine] = [
            Engine(model, number, folder, lambda engine: on_lost(self))
            for number in range(model.engines)
        ]
        self.wanted = ""  # the id of the version that the model's alias names; "": it has none
        self._one = asyncio.Lock()  # a switch ends before a sleep begins

    def can_serve(self, model: Model) -> bool:
        """Whether these engines are those that the model would start: only the rest of what
        models.toml says of it may differ."""
        return models.mark(model) == models.mark(self.model) and model.name == self.model.name

    def change(self, model: Model) -> None:
        """The same engines, by what models.toml says now."""
        self.model = model
        for engine in self.engines:
            engine.model = model

    @property
    def is_running(self) -> bool:
        """Whether all of them run."""
        return all(engine.is_running for engine in self.engines)

    def pick(self) -> Engine:
        """The one that has the fewest requests."""
        return min(self.engines, key=lambda engine: (not engine.is_running, engine.in_flight))

    async def find(self) -> bool:
        """Whether all engines run already; they sleep then. Else none runs."""
        if all([await engine.find() for engine in self.engines]):
            await self.sleep()
        else:
            await self.end()
        return self.is_running

    async def wake(self) -> None:
        """Starts those that don't run, and wakes all. If one fails, none is awake."""
        async with self._one:
            try:
                await _all(engine.start() for engine in self.engines)
                if self.model.parks:
                    await _all(engine.wake() for engine in self.engines)
            except BaseException:
                await self._give_up()
                raise

    @property
    def is_behind(self) -> bool:
        """Whether engines may be on another version than the one that is wanted."""
        return bool(self.wanted) and any(each.version_id != self.wanted for each in self.engines)

    async def switch(self) -> None:
        """Moves all engines to what the model's alias names. They have to be awake. Raises
        Unsupported if they are of a kind that can't, and the first error of the engines."""
        async with self._one:
            if not self.model.parks:
                raise errors.Unsupported(f"engines of {self.model.name} can't switch")
            await _all(each.switch() for each in self.engines if each.is_running)

    async def _give_up(self) -> None:
        """After a wake that failed: what runs sleeps, or ends if it can't."""
        for engine in self.engines:
            try:
                if engine.is_running and self.model.parks:
                    await engine.park()
            except errors.Error as error:
                log.warning("%s can't park: %s", engine, error)
                await engine.end()
            if not self.model.parks:
                await engine.end()

    async def sleep(self) -> None:
        """Parks all, with the requests that they have, or ends them. If one can't park, all end."""
        async with self._one:
            try:
                if not self.model.parks:
                    raise errors.Unsupported("it does not park")
                await _all(engine.park() for engine in self.engines)
            except errors.Error as error:
                if self.model.parks:
                    log.error("%s can't park and ends: %s", self.model.name, error)
                await self.end()

    async def end(self) -> None:
        await asyncio.gather(*(engine.end() for engine in self.engines))


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Awaits all of them, and raises the first error when all have ended."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each


# ---- commands ------------------------------------------------------------------------------------


def command(model: Model, place: models.Place, port: str) -> list[str]:
    """The command line of an engine. It has no key: everybody on the machine can read it."""
    if model.engine == models.COMMAND:
        given = {"socket": str(place.socket), "port": port}
        given.update(source=model.source, name=model.name, version=model.version)
        words = list(model.command)
        for name, value in given.items():
            words = [word.replace(f"{{{name}}}", value) for word in words]
        return [*words, *model.arguments]
    if model.engine == models.VLLM:
        words = ["vllm", "serve", model.source, "--served-model-name", model.name]
        words += ["--uds", str(place.socket), "--load-format", "gpuwm"]
        if model.parks:
            words += ["--worker-cls", "gpuwm.vllm.Worker", "--enable-sleep-mode"]
            words += ["--middleware", "gpuwm.vllm.Control"]
        return [*words, *_weights(model), *model.arguments]
    words = [sys.executable, "-m", "sglang.launch_server", "--model-path", model.source]
    words += ["--served-model-name", model.name, "--host", "127.0.0.1", "--port", port]
    words += ["--config", str(place.config), "--load-format", "gpuwm"]
    return [*words, *_weights(model), *model.arguments]


def _weights(model: Model) -> list[str]:
    """Which version an engine attaches to."""
    if not model.version:
        return []
    settings = {"ref": model.version, "mode": "load"}
    return ["--model-loader-extra-config", json.dumps(settings)]


SOCKET = "GPUWM_SERVE_SOCKET"  # the variable that says whose engine a process belongs to
KEY = "GPUWM_SERVE_KEY"  # the variable by which an engine at a port gets its key


def environment_of(model: Model, key: str) -> dict[str, str]:
    """What an engine's environment has besides that of gpuwm-serve."""
    found = dict(model.environment)
    gpus = [device for device in model.devices if device != "host"]
    if gpus:
        found.setdefault("CUDA_VISIBLE_DEVICES", ",".join(gpus))
    if key:
        found[KEY] = key
    return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _end_with_parent() -> None:
    """In the child: a server at a port that nobody asks any more ends with gpuwm-serve."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listener(path: pathlib.Path) -> int:
    """The process of this user that listens at a socket; 0 if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return 0
        size = struct.calcsize("3i")
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        pid, uid, _ = struct.unpack("3i", found)
        return int(pid) if uid == os.geteuid() else 0


def end_strays(folder: pathlib.Path, known: Collection[pathlib.Path]) -> None:
    """Ends the engines of this folder that nobody can find any more, and returns when they have
    ended: those that listen at none of the known sockets. models.toml has them no longer, or they
    were still starting when an earlier gpuwm-serve was killed."""
    kept = {pid for path in known if (pid := listener(path))}
    strays = _groups(folder) - {_group(pid) for pid in kept}
    for number, seconds in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
        end = time.monotonic() + seconds
        for group in strays:
            log.info("process group %d is an engine that nobody asks: it ends", group)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        while strays and time.monotonic() < end:
            time.sleep(LOOK_S)
            strays &= _groups(folder)
    for path in folder.glob("*.sock"):
        if path not in known:
            path.unlink(missing_ok=True)


def _groups(folder: pathlib.Path) -> set[int]:
    """The process groups of all engines of this folder. What a process was started with, the kernel
    says."""
    begin = f"{SOCKET}={folder}/".encode()
    found = set()
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # it is another user's, or has ended
                variables = (process / "environ").read_bytes().split(b"\0")
                if any(each.startswith(begin) for each in variables):
                    found.add(_group(int(process.name)))
    return found - {0}


def _group(pid: int) -> int:
    """0: there is no such process."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
