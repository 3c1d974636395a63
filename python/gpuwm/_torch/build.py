"""Builds a model on a version that is there, or on one that this process makes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import nn

from .. import _client as clients
from .. import _election
from .._c import lib
from .._mapping import Mapping as Attached
from .._mode import ByMode, Mode, Wait, mode_of, wait_of
from .._publish.making import Files
from .._shown.progress import Hook
from . import fit, init
from .bind import bind
from .places import modules_of, places

M = TypeVar("M", bound=nn.Module)
Globs = str | Sequence[str]
Made = TypeVar("Made")

_MAKE = "a function that returns the model: lambda: Model(config)"


def build(
    ref: str,
    make: Callable[[], M],
    *,
    fill: Callable[[M], M | None] | None = None,
    mode: Mode | None = None,
    strict: bool = True,
    share_buffers: bool | Globs = False,
    private: Globs = (),
    guard: bool = True,
    wait: Wait = ByMode.WAIT,
    device: Any = None,
    key: lib.Key | None = None,
    owner: lib.Owner | None = None,
    alias: str | None = None,
    files: Files | None = None,
    metadata: Mapping[str, str] | None = None,
    ttl: float | None = None,
    keep_last: int | None = None,
    progress: Hook | None = None,
    client: clients.Client | None = None,
    **options: Any,
) -> M:
    """Returns a model whose parameters are the memory of a version.

    - make: returns the model (`lambda: Model(config)`).
    - mode: "load" (the default) attaches, makes the model without memory for its parameters, and
      binds it. "save" makes the model with memory, lets `fill` give it its values (from files,
      quantised, fused), publishes it and binds it. "auto" (the default with `fill`): the first
      process saves, and the others load. "local" makes and fills the model in this process, and
      asks no gpuwmd. None: $GPUWM_MODE, or the default.
    - fill: may return another model, of the structure that `make` gives in mode load. None: `make`
      gives the model its values; processes that load then spend time on reading values that they
      don't use.
    - strict, share_buffers, private, guard: as in `bind`.
    - wait, device, key, owner, alias, files, metadata, ttl, keep_last, progress, client: as in
      `gpuwm.obtain`.
    - options: further options of `gpuwm.attach`, only in mode load.
    """
    # a class or function, or a model that has __call__ for other arguments
    if isinstance(make, nn.Module):
        raise lib.wrong("make", type(make), _MAKE)
    lib.function(make, "make", _MAKE)
    if fill is not None:
        lib.function(fill, "fill", "a function that gives the model its values")
    chosen = mode_of(mode, "load" if fill is None else "auto")
    made: list[M] = []

    def filled() -> M:
        model = make()
        made.append((fill(model) or model) if fill else model)
        return made[0]

    if chosen == "local":
        return _election.filled(ref, filled, progress)
    if chosen == "load":
        from .._attach import attach

        mapping = attach(
            ref,
            device=device,
            wait=wait_of(wait, chosen),
            key=key,
            owner=owner,
            progress=progress,
            client=client,
            **options,
        )
    else:
        mapping = _election.obtain(
            ref,
            filled,
            mode=chosen,
            wait=wait,
            device=device,
            key=key,
            owner=owner,
            alias=alias,
            files=files,
            metadata=metadata,
            ttl=ttl,
            keep_last=keep_last,
            private=private,
            progress=progress,
            client=client,
            **options,
        )
    return _bound(mapping, made, make, strict, share_buffers, private, guard)


def _bound(
    mapping: Attached,
    made: list[M],
    make: Callable[[], M],
    strict: bool,
    share_buffers: bool | Globs,
    private: Globs,
    guard: bool,
) -> M:
    if not made:
        made.append(made_empty(make, lambda model: fit.lost(model, mapping), stacklevel=3))
        _take_memory(made[0], mapping)
    bind(mapping, made[0], strict=strict, share_buffers=share_buffers, private=private, guard=guard)
    return made[0]


def made_empty(
    make: Callable[[], Made], lost: Callable[[Made], str | None], *, stacklevel: int
) -> Made:
    """Returns what `make` makes in empty_init. If `make` can't do without the memory of parameters,
    it makes another one outside of empty_init, and a warning says why.

    lost: says what of the first one has no values and gets none. stacklevel: of the warning, as if
    the caller warned."""
    try:
        with init.emptying(init.Emptied(decides=False)):
            made = make()
        why = lost(made)
        if why is None:
            return made
        del made
    except init.NeedsMemory as error:
        why = error.message
    warnings.warn(
        f"the model is made again, with memory for its parameters: {why}. What `__init__` computes "
        "of parameters has their first values, and not the version's.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
    return make()


def _take_memory(model: nn.Module, mapping: Attached) -> None:
    """Takes the memory of parameters on the CPU that get memory of the version on a GPU."""
    if mapping.device == "host":
        return
    modules = modules_of(model)
    with fit.let_go(module for _, module in modules):
        for place in places(modules):
            movable = not place.is_buffer and place.tensor.device.type == "cpu"
            if movable and init.is_plain(place.tensor) and any(n in mapping for n in place.names):
                with contextlib.suppress(init.NeedsMemory):  # somebody holds it: bind says so
                    init.empty(*place.owners[0], place.tensor)
