"""Versions that this process attached because another process sent something that lies in one."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NamedTuple

from . import _client as clients
from . import _connection, _lease, errors
from ._c.handle import Handle, Where


class View(NamedTuple):
    """The part of a tensor's memory that a view has, as torch counts: in elements of dtype (an
    attribute of torch)."""

    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conj: bool
    neg: bool


class Origin(NamedTuple):
    """Where a tensor lies that is sent: see gpuwm.Ref, which has the same fields."""

    socket: str | None
    version: str
    label: str
    device: str
    rank: int
    name: str
    view: View | None = None


# Each version is attached once, for as long as anything that was received from it lives.
_lock = threading.RLock()  # reentrant, since a signal handler may open a reference too
_received: weakref.WeakValueDictionary[tuple[str | None, str, str, int], Where]
_received = weakref.WeakValueDictionary()
_clients: dict[str | None, clients.Client] = {}


def _in_child() -> None:
    """Forgets what the parent has."""
    global _lock, _received
    _lock = threading.RLock()
    _received = weakref.WeakValueDictionary()
    _clients.clear()


os.register_at_fork(after_in_child=_in_child)


def received(origin: Origin) -> Where:
    """The version, attached. It stays so while the result, or a tensor marked with it, lives."""
    key = (origin.socket, origin.version, origin.device, origin.rank)
    with _lock:
        where = _received.get(key)
        if where is None:
            handle = _take(origin)
            where = _received[key] = Where(handle)
            where.keeps = handle
        return where


def handle_of(where: Where) -> Handle:
    """The handle of a version that was received."""
    assert where.keeps is not None
    return where.keeps


def _take(origin: Origin) -> Handle:
    client = client_of(origin.socket)
    try:
        return _lease.take(origin.version, device=origin.device, rank=origin.rank, client=client)
    except errors.NotFound as error:
        raise errors.NotFound(
            f"{origin.label}, which tensor {origin.name} was passed on from, is gone: "
            f"{error.message}",
            "who passes it on keeps it (a lease or a pin) until it was received",
        ) from None


def client_of(socket: str | None) -> clients.Client:
    """The client that this process opens references with. socket: None is the default one."""
    if socket is None:
        return _connection.shared()
    shared = _connection.shared() if os.environ.get("GPUWM_SOCKET") == socket else None
    if shared is None:
        shared = _clients.get(socket) or _connection.connect(socket)
        _clients[socket] = shared
    return shared
