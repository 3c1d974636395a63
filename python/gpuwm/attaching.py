"""Attaching to a version: `gpuwm.attach` and its awaitable form."""

from __future__ import annotations

import collections.abc
from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload

from . import _threads
from .client import Client
from .copies import Copies
from .mapping import Mapping, Writes, attach_mapping


@overload
def attach(
    ref: str,
    *,
    device: Any = None,
    rank: int = 0,
    wait: float | None = None,
    layers: Iterable[int] | None = None,
    glob: str | Sequence[str] | None = None,
    copy: Literal[False] = False,
    writes: Writes = "refused",
    key: collections.abc.Mapping[str, object] | None = None,
    client: Client | None = None,
) -> Mapping: ...


@overload
def attach(
    ref: str,
    *,
    device: Any = None,
    rank: int = 0,
    wait: float | None = None,
    layers: Iterable[int] | None = None,
    glob: str | Sequence[str] | None = None,
    copy: Literal[True],
    key: collections.abc.Mapping[str, object] | None = None,
    client: Client | None = None,
) -> Copies: ...


def attach(
    ref: str,
    *,
    device: Any = None,
    rank: int = 0,
    wait: float | None = None,
    layers: Iterable[int] | None = None,
    glob: str | Sequence[str] | None = None,
    copy: bool = False,
    writes: Writes = "refused",
    key: collections.abc.Mapping[str, object] | None = None,
    client: Client | None = None,
) -> Mapping | Copies:
    """Leases and maps a version: its tensors, shared, in about a millisecond.

    ref: "model", "model@tag", "model@alias" or a version id.
    device: "host", a UUID, "cuda:N" or N as this process counts, a torch.device; None: where the
    version is, if that is one device, else the current one.
    rank: of a version in parts. wait: seconds for one that is not there or not ready yet; None does
    not wait, math.inf for ever. Ctrl-C ends a wait.
    layers, glob: a subset, tensors of these layers or whose names match; only segments that hold
    one are mapped, and the mapping has no others.
    copy: private tensors of this process (torch), which may be written; the lease ends at once.
    writes: "private" (host): a write is copied and stays in this process. "refused": it faults.
    key: fields that the version's key must have, equal, as texts: {"dtype": "bf16", "world": 2}.
    client: None: one that the process shares.

    NotFound, NoDevice (lists where it is), TimedOut, Mismatch (names the field), Damaged,
    Unsupported, Quota, Draining, Unreachable.
    """
    mapping = attach_mapping(
        ref,
        device=device,
        rank=rank,
        wait=wait,
        layers=layers,
        glob=glob,
        writes=writes,
        key=key,
        client=client,
    )
    if not copy:
        return mapping
    try:
        return Copies(mapping)
    finally:
        mapping.drop()


async def attach_async(ref: str, **options: Any) -> Mapping | Copies:
    """As attach, awaited: the event loop goes on. Cancelled, the call goes on in its thread until
    it would have returned (at most `wait`), and gives back at once what it got."""
    return await _threads.awaited(lambda: attach(ref, **options))
