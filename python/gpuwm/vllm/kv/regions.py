"""The region of a rank: opened where it lies, or created."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ... import _connection, errors
from ..._c import devices
from .settings import Settings

if TYPE_CHECKING:
    from ..._client import Client

# How long another engine may take to make the region: its loader makes a context and clears the
# memory, which takes a second. It looks again after each nap.
_MADE_S, _NAP_S = 60.0, 0.05


def of_worker(settings: Settings, rank: int, block_bytes: int, device: str) -> Any:
    """Returns gpuwm.Blocks, which `device` can reach. device: of the rank's KV cache.

    Raises Mismatch if the region that is there has blocks of another size, and the errors of
    gpuwm.connect, Blocks.create and Blocks.reach.
    """
    name = settings.region_of(rank)
    client = _connection.connect(settings.socket)
    here = devices.resolve(device, client)
    found = _open_or_create(settings, name, block_bytes, here, client)
    try:
        if found.block_bytes != block_bytes:
            raise errors.Mismatch(
                f"the region {name} has blocks of {found.block_bytes:,} bytes, and those of this "
                f"engine have {block_bytes:,}",
                "it is for engines with another model, block size or type of cache: give this one "
                'another name ("region")',
            )
        if found.device != here:
            found.reach(device)
    except BaseException:
        found.close()
        raise
    return found


def _open_or_create(
    settings: Settings, name: str, block_bytes: int, device: str | None, client: Client
) -> Any:
    from ... import Blocks

    end = time.monotonic() + _MADE_S
    while time.monotonic() < end:
        try:
            return Blocks.open(name, client=client)
        except errors.NotYet:
            time.sleep(_NAP_S)
            continue
        except (errors.NotFound, errors.Ended):
            count = settings.blocks_of(block_bytes)
        try:
            return Blocks.create(
                name,
                device=settings.device or device,
                blocks=count,
                block_bytes=block_bytes,
                client=client,
            )
        except errors.Exists:  # it was made in between, or this user may not see it
            time.sleep(_NAP_S)
    raise errors.Busy(
        f"there is a region {name}, and it could not be opened in {_MADE_S:g} s: another process "
        "makes it, or it belongs to another user",
        'start the engine again, or give it another name ("region")',
    )


def of_scheduler(settings: Settings, name: str) -> Any:
    """Opens the region to look keys up and to hold blocks: the scheduler's process may have no GPU.
    Raises the errors of gpuwm.connect and Blocks.open. It does not wait for a gpuwmd that is
    away."""
    from ... import Blocks

    return Blocks.open(name, look=True, client=_connection.connect(settings.socket, restart=0))
