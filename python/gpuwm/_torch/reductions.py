"""Sends torch tensors that lie in a version through multiprocessing, as references.

torch's own way copies host memory, and moves the sender's storage there. On a GPU it exports memory
that the sender must keep until all receivers have taken it. Tensors that lie in no version go
torch's way. Only multiprocessing's pickler sends references: pickle, torch.save and deepcopy get
the bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # it registers its own reducers, which gpuwm's replace
from torch import nn

from .. import errors
from .._c import lib
from .._c.handle import Where
from .._ref import Ref, View, received

# of a storage: the version, and the name of the tensor that fills the storage
Origin = tuple[Where, str]


_Reducer = Callable[[Any], tuple[Any, ...]]
_torchs: dict[type, _Reducer] = {}


def mark(storage: Any, where: Where, name: str) -> None:
    """From now on every view of the storage is sent as a reference."""
    _install()
    storage.gpuwm_origin = (where, name)


@functools.cache
def _install() -> None:
    reducers: dict[type, _Reducer] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind, reduce in (
        (torch.Tensor, reduce_tensor),
        (nn.Parameter, reduce_tensor),
        (torch.UntypedStorage, _reduce_storage),
    ):
        _torchs[kind] = reducers[kind]
        ForkingPickler.register(kind, reduce)


def is_used() -> bool:
    """Whether this process has marked anything."""
    return bool(_torchs)


def origin_of(tensor: torch.Tensor) -> Origin | None:
    """The version that a tensor lies in, and the name of the version's tensor there."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a subclass without a storage
        return None
    return getattr(storage, "gpuwm_origin", None)


def name_of(tensor: torch.Tensor) -> str | None:
    """The name of the version's tensor that it lies in."""
    origin = origin_of(tensor)
    return origin[1] if origin else None


def ref(tensor: torch.Tensor) -> Ref:
    """A reference to a tensor, or a view of one, that lies in a version. Raises Invalid if it does
    not."""
    if not isinstance(tensor, torch.Tensor):
        raise lib.wrong("tensor", tensor, "a tensor of torch: mapping.ref(name) needs none")
    origin = origin_of(tensor)
    if origin is None:
        raise errors.Invalid(
            "the tensor lies in no version that gpuwm attached", "publish it, or send its bytes"
        )
    return _ref(origin, tensor)


def _ref(origin: Origin, tensor: torch.Tensor | None) -> Ref:
    where, name = origin
    view = None
    if tensor is not None:
        view = View(
            str(tensor.dtype).removeprefix("torch."),
            int(tensor.storage_offset()),
            tuple(map(int, tensor.size())),
            tuple(map(int, tensor.stride())),
            tensor.is_conj(),
            tensor.is_neg(),
        )
    return Ref(where.socket, where.id, where.label, where.device, where.rank, name, view)


# ---- sending -----------------------------------------------------------------------------------


def reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """The reducer for multiprocessing's pickler."""
    plain = getattr(tensor, "gpuwm_plain", None)
    origin = origin_of(tensor)
    if origin is None:
        return _torchs[type(tensor)](tensor) if plain is None else _bytes(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("a computed tensor that requires gradients can't be sent: detach() it")
    kind = plain or type(tensor)
    attributes = dict(tensor.__dict__) if plain else {}
    return _receive, (_ref(origin, tensor), kind, bool(plain), tensor.requires_grad, attributes)


def _bytes(tensor: Any) -> tuple[Any, ...]:
    reduced: tuple[Any, ...] = tensor.__reduce_ex__(2)
    return reduced


def _reduce_storage(storage: Any) -> tuple[Any, ...]:
    origin = getattr(storage, "gpuwm_origin", None)
    if origin is None:
        return _torchs[torch.UntypedStorage](storage)
    return _receive_storage, (_ref(origin, None),)


# ---- receiving ---------------------------------------------------------------------------------


def rebuilt(reference: Ref) -> torch.Tensor:
    """The tensor in place, and marked: it can be sent on, and keeps the version attached."""
    where = received(reference)
    whole = reference.open().torch()
    mark(whole.untyped_storage(), where, reference.name)
    view = reference.view
    if view is None:
        return whole
    empty = torch.empty(0, dtype=getattr(torch, view.dtype), device=whole.device)
    found = empty.set_(whole.untyped_storage(), view.offset, view.shape, view.strides)
    found = found.conj() if view.conj else found
    return torch._neg_view(found) if view.neg else found


def _receive(
    reference: Ref,
    kind: type[torch.Tensor],
    shared: bool,
    requires_grad: bool,
    attributes: dict[str, Any],
) -> Any:
    from . import guards

    found = rebuilt(reference)
    if shared:
        kind = guards.shared_class(kind)
    elif kind is torch.Tensor:
        return found.requires_grad_(requires_grad)
    made: Any = torch.Tensor._make_subclass(kind, found, requires_grad)
    made.__dict__.update(attributes)
    return made


def _receive_storage(reference: Ref) -> torch.UntypedStorage:
    return rebuilt(reference).untyped_storage()
