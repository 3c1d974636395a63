"""References to tensors of a version, for other processes of this machine."""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _client as clients
from . import _connection, _needs, errors
from ._attach import attach_mapping
from ._c.handle import Handle, Where
from ._mapping import Mapping
from ._tensor import Tensor

if TYPE_CHECKING:
    from torch import Tensor as TorchTensor


class View(NamedTuple):
    """The part of a tensor's memory that a view has, as torch counts: in elements of dtype (an
    attribute of torch)."""

    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conj: bool
    neg: bool


@dataclasses.dataclass(frozen=True)
class Ref:
    """A reference to a tensor of a version, or to a view of one: a few hundred bytes, for any
    pickle and any channel.

    It holds nothing. Whoever opens it gets a lease of its own, as often as it likes, as long as the
    version is there.

    - socket: of gpuwmd. None: the one that is found without a path.
    - version: its id. label: "model@tag".
    """

    socket: str | None
    version: str
    label: str
    device: str
    rank: int
    name: str
    view: View | None = None

    def open(self) -> Tensor:
        """The whole tensor, in place. Raises NotFound if the version is gone, NoDevice, and all
        other errors of `attach`."""
        handle = self._handle()
        return Tensor(handle, handle.table().positions[self.name], False)

    def torch(self) -> TorchTensor:
        """The tensor, or the view of it, in place."""
        _needs.torch("Ref.torch")
        from ._torch import reductions

        return reductions.rebuilt(self)

    def _handle(self) -> Handle:
        found = received(self).keeps
        assert found is not None
        return found


# ---- what was received -------------------------------------------------------------------------

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


def received(ref: Ref) -> Where:
    """The version, attached. It stays so while the result, or a tensor marked with it, lives."""
    key = (ref.socket, ref.version, ref.device, ref.rank)
    with _lock:
        where = _received.get(key)
        if where is None:
            handle = _attach(ref)._held()
            where = _received[key] = Where(handle)
            where.keeps = handle
        return where


def _attach(ref: Ref) -> Mapping:
    client = client_of(ref.socket)
    try:
        return attach_mapping(ref.version, device=ref.device, rank=ref.rank, client=client)
    except errors.NotFound as error:
        raise errors.NotFound(
            f"{ref.label}, which tensor {ref.name} was passed on from, is gone: {error.message}",
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


# ---- multiprocessing ---------------------------------------------------------------------------


Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _reduce_tensor(tensor: Tensor) -> Reduced:
    return Ref.open, (tensor.ref(),)


def _reduce_mapping(mapping: Mapping) -> Reduced:
    where = mapping._held().where
    return _again, (where.socket, where.id, where.device, where.rank)


def _again(socket: str | None, version: str, device: str, rank: int) -> Mapping:
    client = client_of(socket)
    return attach_mapping(version, device=device, rank=rank, client=client)


ForkingPickler.register(Tensor, _reduce_tensor)
ForkingPickler.register(Mapping, _reduce_mapping)
