"""Builds a model on a version that is there, or on one that this process makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from .. import _client as clients
from .. import _election
from .._c import lib
from .._mapping import Mapping as Attached
from .._mode import ByMode, Mode, Wait, mode_of, wait_of
from .._publish.making import Files
from . import init
from .bind import bind

Globs = str | Sequence[str]

_MAKE = "a function that returns the model: lambda: Model(config)"


def build(
    ref: str,
    make: Callable[[], nn.Module],
    *,
    fill: Callable[[nn.Module], nn.Module | None] | None = None,
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
    client: clients.Client | None = None,
    **options: Any,
) -> nn.Module:
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
    - wait, device, key, owner, alias, files, metadata, ttl, keep_last, client: as in
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
    made: list[nn.Module] = []

    def filled() -> nn.Module:
        model = make()
        made.append((fill(model) or model) if fill else model)
        return made[0]

    if chosen == "local":
        return filled()
    if chosen == "load":
        from .._attach import attach

        mapping = attach(
            ref, device=device, wait=wait_of(wait, chosen), key=key, owner=owner, client=client, **options
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
            client=client,
            **options,
        )
    return _bound(mapping, made, make, strict, share_buffers, private, guard)


def _bound(
    mapping: Attached,
    made: list[nn.Module],
    make: Callable[[], nn.Module],
    strict: bool,
    share_buffers: bool | Globs,
    private: Globs,
    guard: bool,
) -> nn.Module:
    if not made:
        with init.empty_init():
            made.append(make())
    bind(mapping, made[0], strict=strict, share_buffers=share_buffers, private=private, guard=guard)
    return made[0]
