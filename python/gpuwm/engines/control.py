"""Asks an engine that runs to park, to wake, or to switch to another version: the caller's half.
`python -m gpuwm.engines` and other programs of the machine use it.

An engine that takes such requests listens at an abstract Unix socket, whose name has the pid of its
API server (`socket_name`). It does not listen at its port, which clients reach. Both sides accept
only processes of their own user and of root. A request is a line of JSON, and so is its answer.

    {"do": "park", "mode": "keep", "drain": null}
    {"do": "wake"}
    {"do": "switch", "ref": "llama@prod"}
    {"seconds": 0.031, "did": true}
    {"seconds": 0.21, "did": true, "version": "llama@v2", "id": "5445d1e44b81…"}
    {"error": "Busy", "message": …, "detail": …}
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from .. import errors

KEEP, WAIT, ABORT = MODES = ("keep", "wait", "abort")
PARK, WAKE, SWITCH = "park", "wake", "switch"
PATH = "/gpuwm/engine"  # at the engine's port: {"pid": …}
LINE_MAX = 1 << 16  # bytes of a request or an answer
# How long requests in flight may take to end, with mode WAIT.
DRAIN_S = 600.0
# How long an engine may take besides. It frees a KV cache within milliseconds. When it wakes, its
# weights may have to be read from a disk, which takes minutes (gpuwm.vllm.sleep_mode.WAKE_S).
PARK_S, WAKE_S = 60.0, 360.0
# gpuwm.vllm._switch gives up before, also if it has to resume an engine that did not answer.
SWITCH_S = 600.0
ASK_S = 10.0  # for the pid


def park(target: str, mode: str = KEEP, drain: float | None = None) -> dict[str, Any]:
    """Parks an engine: its KV cache is freed, its weights may leave the GPU. Requests that come
    meanwhile wait until it wakes.

    - target: the URL of a server on this machine, or the pid of its API server.
    - mode: requests in flight go on after the wake, and compute their KV anew ("keep"), or end
      first ("wait"), or are aborted ("abort").
    - drain: with "wait", how many seconds they may take. Default and most: DRAIN_S.

    Returns `seconds`, and `did`: False if it slept already. Raises Invalid, NotFound (nobody
    listens), Refused (the engine of another user), Busy (the engine is paused, another call has not
    ended), TimedOut, Unsupported, and the engine's own error. The engine serves then.
    """
    if mode not in MODES:
        raise errors.Invalid(f"mode {mode!r}", f"it is one of {', '.join(MODES)}")
    if drain is not None and (mode != WAIT or not 0 < drain <= DRAIN_S):
        raise errors.Invalid(
            f"drain of {drain:g} s with mode {mode!r}",
            f'only "{WAIT}" waits for requests, for at most {DRAIN_S:g} s',
        )
    limit = PARK_S + ((drain or DRAIN_S) if mode == WAIT else 0)
    return _ask(target, {"do": PARK, "mode": mode, "drain": drain}, limit)


def wake(target: str) -> dict[str, Any]:
    """Wakes an engine, however it fell asleep. Returns and raises as `park`, and NoRoom. After an
    error the engine sleeps, and the call may be repeated."""
    return _ask(target, {"do": WAKE}, WAKE_S)


def switch(target: str, ref: str) -> dict[str, Any]:
    """Moves an engine that is awake to another version of the same layout, as gpuwm.vllm.switch
    does: requests in flight go on with the new weights.

    Returns `seconds`; `did`: False if it was on that version; `version` and `id` of the one that it
    is on now. Raises as `park` and gpuwm.vllm.switch."""
    return _ask(target, {"do": SWITCH, "ref": ref}, SWITCH_S)


def socket_name(pid: int) -> str:
    return f"\0gpuwm-engine-{pid}"


def is_ours(connection: socket.socket) -> bool:
    """Whether the other side is a process of this user or of root."""
    size = struct.calcsize("3i")
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", found)
    return uid in (os.geteuid(), 0)


# ---- how ----


def _ask(target: str, request: dict[str, Any], limit: float) -> dict[str, Any]:
    pid = _pid_of(target)
    end = time.monotonic() + limit
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(limit)
        try:
            connection.connect(socket_name(pid))
        except OSError as error:
            raise errors.NotFound(
                f"no engine listens for process {pid}: {error.strerror}",
                "start it with --middleware gpuwm.vllm.Control, and give the pid of its API "
                "server; this command needs the engine's network namespace",
            ) from None
        if not is_ours(connection):
            raise errors.Refused(f"process {pid} belongs to another user", "ask as that user")
        answer = b""
        try:
            with contextlib.suppress(ConnectionError):  # it ends the connection, or has ended
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = _read(connection, end)
        except TimeoutError:
            raise errors.TimedOut(
                f"{target} did not {request['do']} within {limit:g} s", "its log says what it does"
            ) from None
    return _checked(target, request["do"], answer)


def _read(connection: socket.socket, end: float) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        connection.settimeout(max(end - time.monotonic(), 0.001))
        more = connection.recv(LINE_MAX)
        if not more or len(found) > LINE_MAX:
            break
        found += more
    return found


def _checked(target: str, what: str, answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.Error(
            f"{target} did not say whether it could {what}: {answer!r}",
            "it may have ended, or belong to another user: its log says why",
        )
    if "error" not in found:
        return found
    kind = getattr(errors, str(found["error"]), errors.Error)
    if not (isinstance(kind, type) and issubclass(kind, errors.Error)):
        kind = errors.Error
    raise kind(f"{target} could not {what}: {found.get('message')}", str(found.get("detail", "")))


def _pid_of(target: str) -> int:
    if target.isdecimal():
        return int(target)
    if urllib.parse.urlsplit(target).scheme not in ("http", "https"):
        raise errors.Invalid(
            f"{target!r} is no engine", "give http://localhost:8000, or the pid of its API server"
        )
    try:
        with urllib.request.urlopen(target.rstrip("/") + PATH, timeout=ASK_S) as answer:
            found = json.loads(answer.read(LINE_MAX))
        return int(found["pid"])
    except urllib.error.HTTPError as error:
        raise errors.Unsupported(
            f"{target}{PATH} answered {error.code}", "start it with --middleware gpuwm.vllm.Control"
        ) from None
    except (OSError, urllib.error.URLError) as error:
        raise errors.Unreachable(f"{target}: {error}", "is the server up?") from None
    except (ValueError, KeyError, TypeError):
        raise errors.Unsupported(
            f"{target}{PATH} did not answer as gpuwm does",
            "start it with --middleware gpuwm.vllm.Control",
        ) from None
