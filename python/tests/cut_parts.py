"""Versions of several parts that are published, and not cut by a load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from conftest import Daemon

import gpuwm
from gpuwm import _cuts

Arrays = dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]


def publish(daemon: Daemon, ref: str, parts: Sequence[Arrays], plan: str | None) -> str:
    """Publishes a part for each rank. plan: what each says of how it was cut. The ref."""
    client = gpuwm.connect(daemon.socket)
    begun: list[str] = []
    for rank, arrays in enumerate(parts):
        gpuwm.publish(
            arrays,
            ref,
            bind=False,
            wait=None,
            device=daemon.device,
            rank=rank,
            world=len(parts),
            join=begun[0] if rank else None,
            announce=None if rank else begun.append,
            metadata={} if plan is None else {_cuts.PLAN: plan},
            client=client,
        )
    last = len(parts) - 1
    gpuwm.attach(ref, rank=last, device=daemon.device, wait=30).drop()  # until it is ready
    return ref
