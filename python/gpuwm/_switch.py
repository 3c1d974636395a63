"""Puts another version at the same addresses: follows a model's alias, or exchanges two
mappings."""

from __future__ import annotations

import ctypes
import errno
import fnmatch
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import errors
from ._c import abi, lib
from ._lease import wait_until_ready
from ._shown import logs
from ._tensors import Tensors

if TYPE_CHECKING:
    import torch

    from ._c.handle import Handle
    from ._torch import registry
    from ._version import Version


def switch(
    mapping: Tensors,
    ref: str | None = None,
    *,
    wait: float | None = None,
    idle: bool = False,
    stale: str | Sequence[str] = (),
    key: lib.Key | None = None,
) -> Version:
    """Puts another version of the same layout where this one is, and refreshes in place every
    private copy that `bind`, or an image, made and that lives. Modules with a `set_extra_state` get
    that of the new version. A module of an image keeps its plain values: a warning names those that
    are others in the new version. What was made from the mapping (models, tensors, arrays, captured
    CUDA graphs) then reads the new bytes. Returns the version that the mapping has now.

    - ref: None: the name that was attached last, so after `attach("llama@prod")` the mapping
      follows `prod`.
    - wait: seconds to wait for a version that is not there yet, or not ready. Ctrl-C ends the wait,
      and nothing has changed.
    - idle: the caller has waited for the device.
    - stale: globs of names of tensors, and of plain values, that may stay the old version's.
    - key: fields that the new version's key must have, with equal values, in place of those that
      attach or publish asked for. {} asks for none. Only this switch asks for them; later ones need
      them again.

    Call it at a quiet point: while it runs, no thread may use the mapping or a model that was bound
    to it, or queue work that reads them. The caller renews what it made from the old bytes itself:
    KV and prefix caches, merged adapters, converted copies, constants that a compiler folded.
    Private copies get the new version's values: what was written into them since bind is gone.

    After these errors nothing has changed. NotFound: perhaps an operator has removed the alias; the
    mapping keeps its version, and can follow again when the alias is there again. Mismatch: another
    layout (the message says the first difference), another key (it names the field), or by name a
    private copy that can't be refreshed, a parameter that holds tensors of its own (scales), or
    something of a model that lost its sharing: bind anew, or name it in `stale`. Busy: another
    attachment of the process shares the memory, or a CUDA stream is being captured. All errors of
    attach can come too.

    After Lost the memory is gone: the library could map neither the new nor the old version.
    """
    handle = mapping._held()
    globs = lib.names(stale, "stale")
    ref = handle.follows if ref is None else ref
    name = lib.ref_bytes(ref)
    if lib.milliseconds(wait, "wait"):
        assert wait is not None
        # It waits before the switch: a switch that went on by itself after Ctrl-C would change the
        # memory under the caller.
        wait_until_ready(ref, handle, wait)
    options = abi.SwitchOptions(size=ctypes.sizeof(abi.SwitchOptions), idle=idle)
    if key is not None:
        options.key, options.key_count = lib.own_key_fields(key)
    copies = _copies(mapping, globs, "switch")
    before, record = mapping.version, _record_of(mapping)
    try:
        with handle.use() as pointer:
            lib.check(handle.library.gpuwm_switch(pointer, name, ctypes.byref(options)))
    finally:
        handle.forget()
    handle.follows = ref
    _count_as_write(handle)
    _refresh(mapping, copies)
    _refresh_extra_states(mapping, before)
    _tell_of_values(mapping, before, record, globs)
    return _switched(before, mapping.version)


def _switched(before: Version, now: Version) -> Version:
    logs.switch.info("switched from %s (%s) to %s (%s)", before, before.id, now, now.id)
    return now


def exchange(
    mapping: Tensors,
    other: Tensors,
    *,
    idle: bool = False,
    stale: str | Sequence[str] = (),
    check: bool = False,
) -> Version:
    """Exchanges the versions of two mappings of one layout, device, rank and subset, and refreshes
    in place every private copy that `bind` made of `mapping` and that lives. Returns the version
    that `mapping` has then. It does not need gpuwmd, which may be down.

    It is for engines of several ranks, which must switch all together or not at all. Each rank
    attaches to the next version. While the engine is paused, each rank exchanges. The same call
    goes back, and `other.close()` gives the old version's lease back. The lease of each version,
    and the name that `switch` follows, go with the version.

    - idle, stale: as in `switch`, whose rules hold for both mappings: call it at a quiet point.
    - check: only find out whether the exchange would be refused. It does not look at the device,
      and changes nothing.

    After these errors nothing has changed. Mismatch: another layout (the message says the first
    difference), another device, rank or subset, or by name a private copy that can't be refreshed,
    or something of a model that lost its sharing. Busy: a model is bound to `other`, another
    attachment of the process shares one of the two, or a CUDA stream is being captured. Invalid:
    both are the same mapping, or only one has private writes.

    After Lost the library could not map one of the two again, or both.
    """
    handle = mapping._held()
    if not isinstance(other, Tensors):
        raise lib.wrong("other", other, "another mapping: gpuwm.attach makes one")
    others = other._held()
    globs = lib.names(stale, "stale")
    _exchange(handle, others, idle=idle, check=True)
    _check_unbound(mapping, other)
    copies = _copies(mapping, globs, "exchange")
    before, record = mapping.version, _record_of(mapping)
    if check:
        return before
    try:
        _exchange(handle, others, idle=idle, check=False)
        handle.exchange(others)
    finally:
        handle.forget()
        others.forget()
    _count_as_write(handle, others)
    _refresh(mapping, copies)
    _refresh_extra_states(mapping, before)
    _tell_of_values(mapping, before, record, globs)
    return _switched(before, mapping.version)


def _exchange(handle: Handle, others: Handle, *, idle: bool, check: bool) -> None:
    size = ctypes.sizeof(abi.ExchangeOptions)
    options = ctypes.byref(abi.ExchangeOptions(size=size, idle=idle, check=check))
    with handle.use() as pointer, others.use() as other:
        lib.check(handle.library.gpuwm_exchange(pointer, other, options))


def _count_as_write(*handles: Handle) -> None:
    """Lets torch refuse a backward pass that began before the switch: it would compute with the
    new bytes."""
    if f"{__package__}._torch.counters" in sys.modules:  # torch has tensors of this process's
        from ._torch import counters

        counters.move(handles)


def _was_bound() -> bool:
    """Whether there can be copies: not without torch, and not before anything was bound."""
    return f"{__package__}._torch.registry" in sys.modules


def _check_unbound(mapping: Tensors, other: Tensors) -> None:
    """Raises Busy if something is bound to `other`: its private copies would keep the old
    values."""
    if not _was_bound():
        return
    from ._torch import registry

    bound = (each.name for each, _ in registry.all_bound(other))
    names = sorted((*bound, *(copied.name for copied, _ in registry.all_copied(other))))
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise errors.Busy(
            f"{mapping.version} can't be exchanged with {other.version}, to which a model is "
            f"bound: {names[0]}{more}",
            "attach the next version without a model, and exchange with that",
        )


# the model's name, the copy, and the tensor that it is a copy of
Copy = tuple[str, "torch.Tensor", "torch.Tensor"]


def _copies(mapping: Tensors, stale: Sequence[str], call: str) -> list[Copy]:
    """The copies to refresh. Raises Mismatch if one can't be refreshed, or something isn't shared
    any more. call: the function that the caller called, for the message."""
    if not _was_bound():
        return []
    from ._torch import described, registry

    copies: list[Copy] = []
    problems: list[str] = []
    every = list(registry.all_bound(mapping))
    others = list(registry.all_copied(mapping))
    moving = {id(tensor) for _, tensor in (*every, *others)}
    wanted: list[tuple[registry.Bound | registry.Copied, torch.Tensor]] = [
        (copied, tensor)
        for copied, tensor in others
        if not any(fnmatch.fnmatchcase(copied.name, glob) for glob in stale)
    ]
    for bound, tensor in every:
        if any(fnmatch.fnmatchcase(bound.name, glob) for glob in stale):
            continue
        if left := described.left_behind(tensor, mapping, moving):
            paths = ", ".join(f"{bound.name}.{path}" for path in left)
            problems.append(f"{bound.name} holds {paths}, made for the bytes that it has now")
        if not bound.private:
            if not bound.has(tensor):
                problems.append(f"{bound.name} was shared, and has memory of its own now")
            continue
        wanted.append((bound, tensor))
    for each, tensor in wanted:
        copy, source = _written(mapping, each, tensor)
        if why := _not_refreshable(copy, source):
            problems.append(f"private copy {each.name} {why}")
        copies.append((each.name, copy, source))
    if problems:
        raise errors.Mismatch(
            f"{mapping.version} can't be replaced:\n  " + "\n  ".join(problems),
            f"\nbind the model anew, or name what may keep its old values: {call}(stale=[…]). What "
            "a parameter holds goes along if it is made of the version's tensors: mapping.torch(n)",
        )
    return copies


def _written(
    mapping: Tensors, copied: registry.Bound | registry.Copied, tensor: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a refresh writes of a copy, and what it reads. If the copy repeats elements, and the
    version's tensor does so in the same way, each of them is written once."""
    source = mapping.torch(copied.source)
    if copied.seen is None or tensor.is_meta:
        return tensor, source
    source = copied.seen.of(source)
    if (tensor.size(), tensor.stride()) == (source.size(), source.stride()):
        for dimension, stride in enumerate(source.stride()):
            if stride == 0:
                tensor, source = (each.narrow(dimension, 0, 1) for each in (tensor, source))
    return tensor, source


def _refresh_extra_states(mapping: Tensors, before: Version) -> None:
    if _was_bound():
        from ._torch import extra_state

        extra_state.refresh(mapping, before)


class OfImages(NamedTuple):
    """What gpuwm.image says of a switch.

    - record_of: the record of the mapping's version, if a module lies on it as an image.
    - warn: of what the mapping's version has in another way than the version before, of which this
      is the record.
    """

    record_of: Callable[[Tensors], bytes | None]
    warn: Callable[[Tensors, Version, bytes, Sequence[str]], None]


images: list[OfImages] = []  # gpuwm.image enters itself: it imports this module


def _record_of(mapping: Tensors) -> bytes | None:
    return images[0].record_of(mapping) if images else None


def _tell_of_values(
    mapping: Tensors, before: Version, record: bytes | None, stale: Sequence[str]
) -> None:
    if record is not None:
        images[0].warn(mapping, before, record, stale)


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


def _refresh(mapping: Tensors, copies: Sequence[Copy]) -> None:
    """Copies again. The sources are at the same addresses, and have the new bytes."""
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
        torch.cuda.synchronize(device)  # since other streams may read the copies next
