"""Makes connections to gpuwmd: one that a caller asks for, and one that the process shares."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time

from . import errors
from ._c import abi, lib, threads
from ._c import events as _events
from ._client import Client

NAME_BYTES = 128  # of the client's name: gpuwmd takes no longer one
SOCKET_BYTES = 107  # of a socket's path: the kernel's address has no room for more


def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    admin: bool = False,
    name: str | None = None,
    wait: float | None = None,
    timeout: float | None = None,
    restart: float | None = None,
) -> Client:
    """Connects to gpuwmd.

    - socket: the path of its socket. None: $GPUWM_SOCKET, else the first where somebody listens of
      $XDG_RUNTIME_DIR/gpuwm/gpuwm.sock, ~/.local/state/gpuwm/gpuwm.sock (this user's gpuwmd, which
      `gpuwmctl start` starts) and /run/gpuwm/gpuwm.sock (the system's).
    - admin: connect to the operators' socket, admin.sock in the same folder.
    - name: what `gpuwmctl clients` calls this client. None: the script's name.
    - wait: seconds to try again while nobody listens. It bounds the whole call.
    - timeout: seconds that the whole call may take. None: `wait`; without both, 30 seconds after
      somebody took the connection.
    - restart: seconds that a call waits for a gpuwmd that went away. None: 30.

    Raises Unreachable if nobody listens there, TimedOut if gpuwmd does not answer, and Refused if
    the mode or group of the socket does not let this user in, or if another user than this one and
    root listens at a path of this user's that was not named.
    """
    given_path = lib.path_bytes(socket, "socket")
    path = _absolute(socket or os.environ.get("GPUWM_SOCKET"))
    options = abi.ConnectOptions(
        size=ctypes.sizeof(abi.ConnectOptions),
        socket=given_path,
        name=lib.text_bytes(name, "name") if name else _script(),
        wait_ms=lib.milliseconds(wait, "wait"),
        timeout_ms=lib.milliseconds(timeout, "timeout"),
        flags=abi.CONNECT_ADMIN if admin else 0,
        restart_ms=lib.milliseconds(restart, "restart"),
    )

    def call() -> Client:
        out = ctypes.c_void_p()
        lib.check(lib.load().gpuwm_connect(ctypes.byref(options), ctypes.byref(out)))
        return Client(out.value or 0, path, admin)

    try:
        return threads.wait_for(call)
    except (errors.NotFound, errors.Unreachable) as error:
        remedy = error.detail or "start gpuwmd, or set GPUWM_SOCKET to its socket"
        raise errors.Unreachable(error.message, remedy, code=error.code, name=error.name) from None


def _script() -> bytes:
    """The script's name, cut to what fits. A program that embeds Python may have none."""
    argv = getattr(sys, "argv", None) or [""]
    name = os.path.basename(str(argv[0] or "")) or "python"
    return name.encode(errors="replace")[:NAME_BYTES].decode(errors="ignore").encode()


def _absolute(socket: str | os.PathLike[str] | None) -> str | None:
    """The absolute path. The client connects again later, and other processes that get a tensor
    connect too, perhaps from another folder. A path that would be too long for a socket's address
    stays relative."""
    if not socket:
        return None
    path = os.fsdecode(socket)
    absolute = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    return absolute if len(os.fsencode(absolute)) <= SOCKET_BYTES else path


# ---- the process's own ------------------------------------------------------------------------

# reentrant, since a signal handler may attach while the main thread connects
_lock = threading.RLock()
_shared: tuple[str | None, Client] | None = None


def _in_child() -> None:
    """Forgets the lock, which another thread of the parent may have held, and the client, which is
    the parent's."""
    global _lock, _shared
    _lock = threading.RLock()
    _shared = None


os.register_at_fork(after_in_child=_in_child)


def shared() -> Client:
    """The client that this process attaches with. It is made when it is first needed, and again
    after a fork or after a change of GPUWM_SOCKET."""
    global _shared
    socket = os.environ.get("GPUWM_SOCKET")
    with _lock:
        if _shared is None or _shared[0] != socket:
            _shared = (socket, connect())
        return _shared[1]


def for_wait(wait_ms: int, client: Client | None) -> tuple[Client, int]:
    """The client for a call that may wait so long, and the wait that is left. Calls on one client
    wait for each other, so a call that may wait long gets one of its own. What connecting took is
    taken from the wait."""
    if client is not None:
        given(client)
        return client, wait_ms
    if wait_ms == 0:
        return shared(), 0
    began = time.monotonic()
    client = connect(timeout=math.inf if wait_ms < 0 else wait_ms / 1000)
    return client, lib.left(wait_ms, began)


def for_options(options: abi.AttachOptions, client: Client | None) -> Client:
    """The client for a call with these options, which gets the wait that is left."""
    client, options.wait_ms = for_wait(options.wait_ms, client)
    return client


def given(client: Client | None) -> Client | None:
    """Checks an argument. Raises TypeError."""
    if client is None or isinstance(client, Client):
        return client
    raise lib.wrong("client", client, "what gpuwm.connect() returns")


def events(after: int | None = None, *, client: Client | None = None) -> _events.Events:
    """The events of gpuwmd, from now on, or after the event with the number `after`.

        async for event in gpuwm.events():
            if event.kind == "swapped" and event.model == "llama": ...

    A plain `for` blocks. The events go on over restarts of gpuwmd.
    """
    _events.position(after)
    return (given(client) or shared()).events(after)
