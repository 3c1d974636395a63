"""Replaces the tensors of a nested value by references, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from .. import errors
from .._c import lib
from .._publish import publish
from . import frameworks, layouts
from .deadlines import Deadline
from .layouts import Layout
from .refs import MODES, How, Mode, SharedRef, TensorRef, checked_how
from .send import Pools, Sending, naming, pools_of
from .trees import replaced


def wrap(
    obj: Any,
    mode: Mode = "default",
    pool: Pools = None,
    *,
    readers: Iterable[int] | int = (),
    others: int | None = None,
    wait: float | None = None,
) -> Any:
    """A copy of a nested value in which each tensor is a `TensorRef`, to be sent anywhere.

    Dicts, lists, tuples, named tuples, OrderedDicts, defaultdicts and dataclasses are walked
    through. Tensors of torch and arrays of NumPy are replaced; other leaves, such as None, arrays
    of objects and references, stay as they are. So do objects of other subclasses of dict, list and
    tuple, such as Counter; with a tensor in one, `wrap` raises Unsupported. The original and its
    containers are not changed. A tensor that occurs twice gets one reference. A reference says
    nothing of gradients: a Parameter arrives as a tensor. `Queue.put` keeps both.

    - mode: how the tensors travel; `TensorRef.mode` says it of each.
      "default": copied into a pool on host, also from a GPU.
      "pool": copied into the pool on their own device.
      "share": moved into a version of their own, as `gpuwm.share` does. Keep what `wrap` returns
      until the receivers have opened their references.
    - pool: one pool, or one for each device.
    - readers, others: who reads, as in `Pool.put`. With "share" they are Invalid: anybody may read.
    - wait: seconds to wait while a pool is full. None: raise PoolFull at once.

    The room of all tensors is taken in one step. If a tensor can't be passed on, `wrap` takes back
    all of them, and raises the error, which names the tensor's place. Raises NoRoom at once if the
    tensors would not fit into an empty pool.
    """
    lib.choice(mode, "mode", MODES)
    if mode == "share" and (readers != () or others is not None):
        raise errors.Invalid('mode="share" with readers= or others=', "anybody may read it")
    sending = Sending(pools_of(pool), Deadline(wait), readers, others)

    def replace(leaf: Any, place: str) -> Any:
        layout = frameworks.layout_of(leaf)
        if layout is None and not layouts.is_tensor(leaf):
            return leaf
        with naming(place):
            if layout is None:
                raise errors.Unsupported("the tensor is not plain dense data of one device")
            if mode == "share":
                return _shared(leaf, layout, sending)
            return _added(sending, layout, leaf, mode, place)

    try:
        wrapped = replaced(obj, replace)
        sending.put()
        return wrapped
    except BaseException:
        sending.withdraw()
        raise


def unwrap(obj: Any, device: Any = None, how: How = "view") -> Any:
    """A copy of a nested value in which each `TensorRef` is its tensor. See `wrap`.

    - device: where the tensors of torch are to be. None: where they lie. Arrays of NumPy stay on
      host.
    - how: "view": in place and read-only, see TensorRef.view; tensors that lie on another device
      are copied. "copy": in memory of their own.

    If a reference can't be opened, `unwrap` gives back all of them, and raises the error, which
    names the reference's place.
    """
    checked_how(how, device)  # before anything is taken
    found: list[TensorRef] = []

    def collect(leaf: Any, _place: str) -> Any:
        if isinstance(leaf, TensorRef):
            found.append(leaf)
        return leaf

    replaced(obj, collect)

    def replace(leaf: Any, place: str) -> Any:
        if not isinstance(leaf, TensorRef):
            return leaf
        with naming(place):
            return leaf.open(device, how)

    try:
        return replaced(obj, replace)
    except BaseException:
        release_all(found)
        raise


def release_all(refs: Iterable[TensorRef]) -> None:
    """Gives back references that this process will not open."""
    for ref in refs:
        with contextlib.suppress(errors.Error):
            ref.release()


def _added(sending: Sending, layout: Layout, tensor: Any, mode: Mode, place: str) -> TensorRef:
    ref = sending.add(layout, tensor, mode, place)
    if ref is None:
        where = "host" if mode == "default" else "the tensor's device"
        raise errors.Invalid(
            f'mode="{mode}" needs a pool on {where}',
            "give pool=, or several: pool=[gpuwm.Pool(2**29), gpuwm.Pool(2**29, 'cuda')]",
        )
    return ref


def _shared(tensor: Any, layout: Layout, sending: Sending) -> TensorRef:
    if not layouts.is_tensor(tensor):
        raise errors.Unsupported('mode="share" is for tensors of torch', "torch.from_numpy(array)")
    from .. import _connection
    from .._torch import lookup
    from . import of_torch

    of_torch.check_leaf(tensor)
    shared = publish.share(tensor.detach())
    source = of_torch.device_name(tensor, _connection.shared())
    there = layout._replace(strides=tuple(shared.stride()))
    ref = SharedRef(lookup.ref(shared), there, source, shared)
    sending.made.append(ref)
    return ref
