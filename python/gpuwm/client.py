"""A connection to gpuwmd: what is there, and what an operator does."""

from __future__ import annotations

import builtins
import ctypes
import json
import math
import os
import sys
import threading
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from . import _abi, _events, _lib, _threads, errors
from ._owner import Owner

NAME_BYTES = 128  # of who connects: gpuwmd takes no longer one
SOCKET_BYTES = 107  # of the path of a socket: the kernel's address has no room for more

_libc = ctypes.CDLL(None)
_libc.free.argtypes = (ctypes.c_void_p,)
_libc.free.restype = None


class Device(NamedTuple):
    """A device of gpuwmd's. total and budget in bytes; segments are multiples of granularity."""

    id: str  # "host", "GPU-…", "MIG-…"
    name: str
    is_cuda: bool
    total: int
    budget: int
    granularity: int
    lost: str  # how the GPU was lost; it then takes no load and no publish. "": it was not lost


class Job(int):
    """The number of a job; it can be waited for and awaited."""

    client: Client

    def __new__(cls, number: int, client: Client) -> Job:
        job = super().__new__(cls, number)
        job.client = client
        return job

    def wait(self, wait: float = math.inf) -> bool:
        """As Client.wait_job."""
        return self.client.wait_job(self, wait)

    def cancel(self) -> None:
        """As Client.cancel."""
        self.client.cancel(self)

    def __await__(self) -> Generator[Any, None, bool]:
        return _events.job_end(self.client, self).__await__()


class Replaced(str):
    """The id of the version that an alias named before it moved. kept: why gpuwmd did not retire
    that version, though `retire_old` asked for it; None: it did, or nobody asked."""

    kept: errors.Error | None = None


class Client:
    """A connection. Any thread may use it; its calls wait for each other. See `connect`.

    Methods that change something, and clients() and jobs(), need `connect(admin=True)`: Refused
    without. What gpuwmd tells comes as it is: its keys are those of docs/protocol.md.
    """

    def __init__(self, pointer: int, socket: str | None = None, admin: bool = False) -> None:
        self.socket = socket  # its path; None: the one that is found without a path
        self.admin = admin  # whether it is on admin.sock, beside that path
        self._library = _lib.load()
        self._owner: Owner | None = Owner(pointer, self._library.gpuwm_close)

    def _held(self) -> Owner:
        if self._owner is None:
            raise errors.Closed("the client was closed", "connect again")
        return self._owner

    @property
    def handle(self) -> int:
        """The address of the `struct gpuwm_client`, for calls to the C library: valid while the
        client is there and not closed."""
        return self._held()._as_parameter_

    def close(self) -> None:
        """Ends the connection when the last mapping that was made from it is gone, and the calls
        that other threads are in have returned."""
        self._owner = None

    def __reduce__(self) -> Any:
        raise TypeError("a gpuwm.Client is a connection of this process: connect() there")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, function: str, *arguments: Any) -> int:
        """A call that gpuwmd answers; Ctrl-C ends the wait for it."""
        owner, call = self._held(), getattr(self._library, function)
        return _threads.wait_for(lambda: _lib.check(call(owner, *arguments)))

    # ---- looking ----

    def ping(self) -> float:
        """Seconds of a round trip."""
        ns = ctypes.c_uint64()
        self._call("gpuwm_ping", ctypes.byref(ns))
        return ns.value / 1e9

    @property
    def instance(self) -> str:
        """gpuwmd's id, changed by each start of it."""
        return _lib.text(self._library.gpuwm_instance(self._held()))

    @property
    def devices(self) -> builtins.list[Device]:
        """gpuwmd's devices, `host` first, as they were when the connection was made."""
        found = ctypes.POINTER(_abi.Device)()
        count = self._library.gpuwm_devices(self._held(), ctypes.byref(found))
        return [
            Device(
                _lib.text(d.id),
                _lib.text(d.name),
                d.is_cuda,
                d.total,
                d.budget,
                d.granularity,
                _lib.text(d.lost),
            )
            for d in found[:count]
        ]

    def list(self, model: str | None = None) -> dict[str, Any]:
        """{"versions": [...], "aliases": [...], "seq": ...}: of one model, or all."""
        return self._query("list", model)

    def status(self) -> dict[str, Any]:
        """gpuwmd itself: devices, limits, what it holds."""
        return self._query("status")

    def clients(self) -> builtins.list[dict[str, Any]]:
        """Who is connected, and what each holds."""
        found: builtins.list[dict[str, Any]] = self._query("clients")["clients"]
        return found

    def jobs(self, job: int | None = None) -> builtins.list[dict[str, Any]]:
        """Jobs with their phases, progress and errors: one, or all."""
        filter_text = None if job is None else str(_job(job))
        found: builtins.list[dict[str, Any]] = self._query("jobs", filter_text)["jobs"]
        return found

    def _query(self, method: str, filter_text: str | None = None) -> dict[str, Any]:
        out = ctypes.c_void_p()
        text = _lib.maybe_text(filter_text, "model")
        self._call("gpuwm_query", method.encode(), text, ctypes.byref(out))
        return self._take_json(out)

    @staticmethod
    def _take_json(out: ctypes.c_void_p) -> dict[str, Any]:
        try:
            result: dict[str, Any] = json.loads(ctypes.string_at(out.value or 0))
        finally:
            _libc.free(out)
        return result

    def events(self, after: int | None = None) -> _events.Events:
        """What happens at its gpuwmd, from now on, or after the event with that number: for `for`,
        and for `async for`."""
        return _events.Events(self, after)

    async def ready(self, ref: str) -> dict[str, Any]:
        """Waits until a version is ready, which need not be known yet; its row of list().

        ref: "model", "model@tag" or "model@alias". Error: it failed, with what.
        """
        return await _events.ready(self, ref)

    # ---- operating ----

    def load(
        self,
        source: str | os.PathLike[str],
        name: str,
        *,
        devices: Sequence[str] | str | None = None,
        alias: str | None = None,
        dry_run: bool = False,
        key: _lib.Key | None = None,
    ) -> Job:
        """Starts to load a checkpoint as `name` ("model@tag"); tells the job at once.

        source: an absolute path beneath a root of gpuwmd's. devices: replicas, or one a rank;
        None: the only GPU, or host without one. alias: moved when it is ready. dry_run: the job
        makes a plan, nothing else. key: the version's, as `attach(key=...)` asks for it.
        """
        fields, field_count = _lib.key_fields(key)
        names, count = _lib.sequence(
            None if devices is None else _lib.names(devices, "devices"), "devices"
        )
        options = _abi.LoadOptions(
            size=ctypes.sizeof(_abi.LoadOptions),
            source=_lib.path_bytes(source, "source"),
            name=_lib.text_bytes(name, "name"),
            devices=names,
            device_count=count,
            alias=_lib.maybe_text(alias, "alias"),
            dry_run=dry_run,
            key=fields,
            key_count=field_count,
        )
        job = ctypes.c_uint64()
        self._call("gpuwm_load", ctypes.byref(options), ctypes.byref(job))
        return Job(job.value, self)

    def wait_job(self, job: int, wait: float = math.inf) -> bool:
        """Waits (seconds) for the end of a job, and raises what it failed with.

        True: all of it is done; False: its version is ready, but its alias could not be moved
        (jobs(job) says why). TimedOut, Cancelled, NotFound; Disconnected: gpuwmd ended with it.
        Other calls of this client wait meanwhile; `await job` blocks nobody.
        """
        return self._call("gpuwm_job_wait", _job(job), _lib.milliseconds(wait, "wait")) == 0

    def cancel(self, job: int) -> None:
        """Cancels a job, and waits until it has ended: about 2 seconds at most. NotFound: there is
        no such job, or it has ended already; the message tells how."""
        self._call("gpuwm_job_cancel", _job(job))

    def swap(
        self,
        model: str,
        to: str | None,
        *,
        alias: str = "current",
        expect: str | None = None,
        retire_old: bool = False,
    ) -> Replaced | None:
        """Moves an alias in one step; returns the id of the version that it named, or None.

        to: a tag, an alias or a version id; None removes the alias. expect: only if it names this
        version id now ("0" * 32: only if there is none), else Busy. retire_old: the version that
        it named is retired; `kept` of what is returned says why it could not be, if another alias
        names it: the alias has moved nevertheless.
        """
        options = _abi.SwapOptions(
            size=ctypes.sizeof(_abi.SwapOptions),
            model=_lib.text_bytes(model, "model"),
            alias=_lib.text_bytes(alias, "alias"),
            to=_lib.maybe_text(to, "to"),
            expect=_lib.maybe_text(expect, "expect"),
            retire_old=retire_old,
        )
        owner, old = self._held(), ctypes.create_string_buffer(33)

        def call() -> errors.Error | None:
            library = self._library
            if _lib.check(library.gpuwm_swap(owner, ctypes.byref(options), old)) == 0:
                return None
            return _lib.last_error(library.gpuwm_error().contents.code)

        kept = _threads.wait_for(call)
        replaced = Replaced(_lib.text(old.value))
        replaced.kept = kept
        return replaced if replaced else None

    def set_alias(
        self, model: str, alias: str, to: str, *, expect: str | None = None
    ) -> Replaced | None:
        """Makes an alias, or moves it, in one step: from then on "model@alias" is that version.
        Returns the id of the version that the alias named before; None: there was no such alias.

        to: a tag, another alias or a version id, of a version that is ready. expect: as of `swap`.
        NotFound: no such version; Exists: `alias` is a tag of the model; Refused.
        """
        return self.swap(model, _lib.ref_bytes(to, "to").decode(), alias=alias, expect=expect)

    def remove_alias(self, model: str, alias: str, *, expect: str | None = None) -> Replaced | None:
        """Removes an alias. The version stays, and so do the leases on it. Returns the id of the
        version that the alias named. NotFound: there is no such alias; Refused."""
        return self.swap(model, None, alias=alias, expect=expect)

    def rollback(self, model: str) -> Replaced | None:
        """Swaps to the version that `current` named before. NotFound: there is none."""
        return self.swap(model, "previous")

    def pin(self, ref: str, name: str) -> None:
        """Holds a version under a name, whoever else leaves; it survives restarts. Exists."""
        self._call("gpuwm_pin", _lib.ref_bytes(ref), _lib.text_bytes(name, "name"))

    def unpin(self, ref: str, name: str) -> None:
        """Lets go of a pin. NotFound."""
        self._call("gpuwm_unpin", _lib.ref_bytes(ref), _lib.text_bytes(name, "name"))

    def retire(
        self, ref: str, wait: float | None = None, *, force: bool = False, after: float = 0
    ) -> None:
        """No new leases; freed when the last lease and pin are gone, for which it waits (seconds)
        if asked: TimedOut. Busy: an alias names it.

        force: leases that are left `after` so many seconds are revoked, and the version is freed
        then, whatever its workers do. Busy: it has pins too.
        """
        version, wait_ms = _lib.ref_bytes(ref), _lib.milliseconds(wait, "wait")
        after_ms = _lib.milliseconds(after, "after")
        if after_ms < 0 or (after_ms and not force):
            raise errors.Invalid(f"after={after!r}", "seconds that a retire by force leaves")
        if force:
            self._call("gpuwm_retire_by_force", version, after_ms, wait_ms)
        else:
            self._call("gpuwm_retire", version, wait_ms)

    def remove(self, ref: str) -> None:
        """Removes a failed version from list(); gpuwmd does so itself after a day. Error: the
        version did not fail; `detail` says what frees it. NotFound."""
        self._call("gpuwm_remove", _lib.text_bytes(ref, "ref"))

    def kick(
        self, lease: int | None = None, *, pid: int | None = None, uid: int | None = None
    ) -> builtins.list[dict[str, Any]]:
        """Revokes a lease (its number is in clients()), or all leases of a process or of a user;
        which they were. The holders are told, and get none of them again. NotFound: no lease."""
        given = [
            (by, _lib.count(number, name, _lib.UINT64_MAX))
            for by, name, number in (
                (_abi.KICK_LEASE, "lease", lease),
                (_abi.KICK_PID, "pid", pid),
                (_abi.KICK_UID, "uid", uid),
            )
            if number is not None
        ]
        if len(given) != 1:
            raise errors.Invalid(f"{len(given)} of lease, pid and uid", "kick takes one of them")
        out = ctypes.c_void_p()
        self._call("gpuwm_kick", *given[0], ctypes.byref(out))
        kicked: builtins.list[dict[str, Any]] = self._take_json(out)["leases"]
        return kicked

    def verify(self, ref: str, device: str | None = None) -> builtins.list[Job]:
        """Has the memory of a version read again and compared with its digests: a job for each
        replica, which fails with Damaged where they differ."""
        numbers = (ctypes.c_uint64 * _abi.VERIFY_JOBS_MAX)()
        count = ctypes.c_size_t()
        version, where = _lib.ref_bytes(ref), _lib.maybe_text(device, "device")
        self._call("gpuwm_verify", version, where, numbers, ctypes.byref(count))
        return [Job(number, self) for number in numbers[: count.value]]

    def drain(self, device: str | None = None) -> None:
        """Has gpuwmd refuse new leases and free everything that is unused, until it is restarted.
        With the device of a lost GPU: revokes the leases on the versions that were lost with the
        GPU, and frees those versions."""
        where = _lib.maybe_text(device, "device")
        if where is None:
            self._call("gpuwm_drain")
        else:
            self._call("gpuwm_drain_device", where)

    def reload(self) -> None:
        """Makes gpuwmd read its configuration again. If the new one is wrong, the old one stays in
        force, and the exception names the file, the line and the error."""
        self._call("gpuwm_reload")


def _script() -> bytes:
    """The script's name, as far as it fits; a program that embeds Python may have none."""
    argv = getattr(sys, "argv", None) or [""]
    name = os.path.basename(str(argv[0] or "")) or "python"
    return name.encode(errors="replace")[:NAME_BYTES].decode(errors="ignore").encode()


def _absolute(socket: str | os.PathLike[str] | None) -> str | None:
    """For later, and for those a tensor is passed on to, who may be in another folder. What would
    be too long for a socket's address stays relative."""
    if not socket:
        return None
    path = os.fsdecode(socket)
    absolute = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    return absolute if len(os.fsencode(absolute)) <= SOCKET_BYTES else path


def _job(number: int) -> int:
    return _lib.count(number, "job", _lib.UINT64_MAX)


def given(client: Client | None) -> Client | None:
    """As an argument: TypeError."""
    if client is None or isinstance(client, Client):
        return client
    raise _lib.wrong("client", client, "what gpuwm.connect() returns")


def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    admin: bool = False,
    name: str | None = None,
    wait: float | None = None,
    restart: float | None = None,
) -> Client:
    """Connects to gpuwmd.

    socket: its path; None: $GPUWM_SOCKET, else $XDG_RUNTIME_DIR/gpuwm/gpuwm.sock when it exists,
    else /run/gpuwm/gpuwm.sock. admin: the operators' socket, admin.sock beside it.
    name: who connects, for `gpuwmctl clients`; None: the script's name.
    wait: seconds to try again while nobody listens. restart: seconds that a call waits for a gpuwmd
    that went away; None: 30.
    Unreachable: nobody listens there. Refused: the socket's mode or group.
    """
    given_path = _lib.path_bytes(socket, "socket")
    path = _absolute(socket or os.environ.get("GPUWM_SOCKET"))
    options = _abi.ConnectOptions(
        size=ctypes.sizeof(_abi.ConnectOptions),
        socket=given_path,
        name=_lib.text_bytes(name, "name") if name else _script(),
        wait_ms=_lib.milliseconds(wait, "wait"),
        flags=_abi.CONNECT_ADMIN if admin else 0,
        restart_ms=_lib.milliseconds(restart, "restart"),
    )

    def call() -> Client:
        out = ctypes.c_void_p()
        _lib.check(_lib.load().gpuwm_connect(ctypes.byref(options), ctypes.byref(out)))
        return Client(out.value or 0, path, admin)

    try:
        return _threads.wait_for(call)
    except (errors.NotFound, errors.Unreachable) as error:
        remedy = error.detail or "start gpuwmd, or set GPUWM_SOCKET to its socket"
        raise errors.Unreachable(error.message, remedy, code=error.code, name=error.name) from None


# ---- the process's own ----------------------------------------------------

_lock = threading.RLock()  # a signal's handler may attach while the main thread connects
_shared: tuple[str | None, Client] | None = None


def _in_child() -> None:
    """Another thread of the parent may have had the lock; and the client is the parent's."""
    global _lock, _shared
    _lock = threading.RLock()
    _shared = None


os.register_at_fork(after_in_child=_in_child)


def shared() -> Client:
    """The client that this process attaches with: made when it is needed, anew after a fork or
    when GPUWM_SOCKET was changed."""
    global _shared
    socket = os.environ.get("GPUWM_SOCKET")
    with _lock:
        if _shared is None or _shared[0] != socket:
            _shared = (socket, connect())
        return _shared[1]


def events(after: int | None = None, *, client: Client | None = None) -> _events.Events:
    """What happens at gpuwmd, from now on, or after the event with that number.

        async for event in gpuwm.events():
            if event.kind == "swapped" and event.model == "llama": ...

    A plain `for` blocks. It goes on over restarts of gpuwmd.
    """
    _events.position(after)
    return (given(client) or shared()).events(after)
