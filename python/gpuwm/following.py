"""Another version at the same addresses: following a model's alias, exchanging two mappings."""

from __future__ import annotations

import ctypes
import errno
import fnmatch
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _abi, _lib, errors
from .attaching import wait_until_ready
from .mapping import Mapping

if TYPE_CHECKING:
    import torch

    from ._handle import Handle
    from .mapping import Version


def switch(
    mapping: Mapping,
    ref: str | None = None,
    *,
    wait: float | None = None,
    idle: bool = False,
    stale: str | Sequence[str] = (),
    key: _lib.Key | None = None,
) -> Version:
    """Puts another version of the same layout where this one is, and refreshes every private copy
    that `bind` made and that lives, in place. What was made from the mapping (models, tensors,
    arrays, captured CUDA graphs) then reads the new bytes. The version it has now.

    ref: None: what was attached last, so `attach("llama@prod")` follows `prod`. wait: seconds for
    a version that is not there or not ready; Ctrl-C ends the wait, and nothing has changed. idle:
    the caller has waited for the device. stale: globs of names that may keep the old version's
    values. key: fields that the new version's key must have, equal, in place of those that attach
    or publish asked for; {} asks for none. The next switch asks for them only if it gets them too.

    To be called at a quiet point: meanwhile no thread may use the mapping or a model that was bound
    to it, nor queue work that reads them. What the caller itself made from the old bytes is the
    caller's to renew: KV and prefix caches, merged adapters, converted copies, constants that a
    compiler folded. Private copies get the new version's values: what was written into them since
    bind is gone.

    Nothing has changed after these: NotFound: an operator has removed the alias, say: the mapping
    keeps its version, and follows again when the alias is there again. Mismatch: another layout,
    and the first difference; another key, and the field; or a private copy that can't be refreshed,
    or something of a model that lost its sharing, by name: bind anew, or name it in `stale`. Busy:
    another attachment of the process shares the memory, or a CUDA stream is being captured. All
    errors of attach. But Lost: neither the new nor the old version could be mapped.
    """
    handle = mapping._held()
    globs = _lib.names(stale, "stale")
    ref = handle.follows if ref is None else ref
    name = _lib.ref_bytes(ref)
    if _lib.milliseconds(wait, "wait"):
        assert wait is not None
        # Before, since a switch that goes on by itself would take the memory from under the caller.
        wait_until_ready(ref, handle, wait)
    options = _abi.SwitchOptions(size=ctypes.sizeof(_abi.SwitchOptions), idle=idle)
    if key is not None:
        options.key, options.key_count = _lib.own_key_fields(key)
    copies = _copies(mapping, globs, "switch")
    try:
        with handle.use() as pointer:
            _lib.check(handle.library.gpuwm_switch(pointer, name, ctypes.byref(options)))
    finally:
        handle.forget()
    handle.follows = ref
    _refresh(mapping, copies)
    return mapping.version


def exchange(
    mapping: Mapping,
    other: Mapping,
    *,
    idle: bool = False,
    stale: str | Sequence[str] = (),
    check: bool = False,
) -> Version:
    """Exchanges the versions of two mappings of one layout, device, rank and subset, and refreshes
    every private copy that `bind` made of `mapping` and that lives, in place. Returns the version
    that `mapping` has then. It asks nothing of gpuwmd, which may be down.

    For engines of several ranks, of which all switch or none: each rank attaches to the next
    version, and while the engine is paused each rank exchanges. The same call goes back, and
    `other.close()` gives the old version's lease back. The lease of each version, and the name that
    `switch` follows, go with the version.

    idle, stale: as for `switch`, whose rules hold for both mappings: call it at a quiet point.
    check: only finds out whether it would be refused, without a look at the device, and changes
    nothing.

    Nothing has changed after these: Mismatch: another layout, and the first difference; another
    device, rank or subset; a private copy that can't be refreshed, or something of a model that
    lost its sharing, by name. Busy: a model is bound to `other`; another attachment of the process
    shares one of the two; or a CUDA stream is being captured. Invalid: one mapping twice, or only
    one with private writes. But Lost: one of the two, or both, could not be mapped again.
    """
    handle = mapping._held()
    if not isinstance(other, Mapping):
        raise _lib.wrong("other", other, "another mapping: gpuwm.attach makes one")
    others = other._held()
    globs = _lib.names(stale, "stale")
    _exchange(handle, others, idle=idle, check=True)
    _check_unbound(mapping, other)
    copies = _copies(mapping, globs, "exchange")
    if check:
        return mapping.version
    try:
        _exchange(handle, others, idle=idle, check=False)
        handle.exchange(others)
    finally:
        handle.forget()
        others.forget()
    _refresh(mapping, copies)
    return mapping.version


def _exchange(handle: Handle, others: Handle, *, idle: bool, check: bool) -> None:
    size = ctypes.sizeof(_abi.ExchangeOptions)
    options = ctypes.byref(_abi.ExchangeOptions(size=size, idle=idle, check=check))
    with handle.use() as pointer, others.use() as other:
        _lib.check(handle.library.gpuwm_exchange(pointer, other, options))


def _was_bound() -> bool:
    """Without torch, or before anything was bound, there are no copies."""
    return f"{__package__}.remembering" in sys.modules


def _check_unbound(mapping: Mapping, other: Mapping) -> None:
    """Busy: something is bound to `other`: its private copies would keep the old values."""
    if not _was_bound():
        return
    from . import remembering

    names = sorted(bound.name for bound, _ in remembering.all_bound(other))
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise errors.Busy(
            f"{mapping.version} can't be exchanged with {other.version}, to which a model is "
            f"bound: {names[0]}{more}",
            "attach the next version without a model, and exchange with that",
        )


Copy = tuple[str, "torch.Tensor", "torch.Tensor"]  # the model's name, the copy, what it is of


def _copies(mapping: Mapping, stale: Sequence[str], call: str) -> list[Copy]:
    """What is to be refreshed. Mismatch: something can't be, or isn't shared any more. call: what
    the caller called, for the message."""
    if not _was_bound():
        return []
    from . import remembering

    copies: list[Copy] = []
    problems: list[str] = []
    for bound, tensor in remembering.all_bound(mapping):
        if any(fnmatch.fnmatchcase(bound.name, glob) for glob in stale):
            continue
        if not bound.private:
            if not bound.has(tensor):
                problems.append(f"{bound.name} was shared, and has memory of its own now")
            continue
        source = mapping.torch(bound.source)
        if why := _not_refreshable(tensor, source):
            problems.append(f"private copy {bound.name} {why}")
        copies.append((bound.name, tensor, source))
    if problems:
        raise errors.Mismatch(
            f"{mapping.version} can't be replaced:\n  " + "\n  ".join(problems),
            f"\nbind the model anew, or name what may keep its old values: {call}(stale=[…])",
        )
    return copies


def _not_refreshable(tensor: torch.Tensor, source: torch.Tensor) -> str | None:
    import torch

    if tensor.is_meta:
        return "has no memory any more"
    if tensor.size() != source.size():
        return f"is {list(tensor.size())} now, {list(source.size())} in the version"
    if any(n > 1 and s == 0 for n, s in zip(tensor.size(), tensor.stride(), strict=True)):
        return "is expanded"
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return "was made in inference mode: switch in torch.inference_mode()"
    return None


def _refresh(mapping: Mapping, copies: Sequence[Copy]) -> None:
    """The sources are at the same addresses, and read the new bytes."""
    if not copies:
        return
    import torch

    with torch.no_grad():
        for name, tensor, source in copies:
            try:
                tensor.copy_(source)
            except RuntimeError as error:
                raise errors.Error(
                    f"the mapping is of {mapping.version} now, but private copy {name} could not "
                    f"be refreshed: {error}",
                    "bind the model anew",
                    code=errno.EIO,
                ) from error
    device = copies[0][2].device
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # other streams may read the copies next
