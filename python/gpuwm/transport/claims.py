"""Blocks that this process has: to fill them, or to read them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

from .. import errors
from .._c import abi_blocks
from . import memory
from .regions import Keeper, Region

REGION_BYTES = 16  # of a region's id


class Claim:
    """What Reserved and Held have in common. len() says how many blocks it names.

    It is made before the call that takes the blocks, and the call writes into it: so no block is
    lost if Ctrl-C comes when the call returns.
    """

    _gone = ""  # what a second call says
    _back = ""  # the function that gives the blocks back

    def __init__(self, region: Region, room: int) -> None:
        self._region = region
        self._blocks = (abi_blocks.Block * room)()
        self._counts: list[ctypes.c_size_t] = []  # of each call that took some
        self._keepers = [region.keeper()]  # empty when the blocks were given back

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.__dict__.get("_keepers") and not is_finalizing():
            with contextlib.suppress(errors.Error):
                memory.settle(self._region)
                self._give(self._back)

    def __repr__(self) -> str:
        what = type(self).__name__
        given_back = "" if self._keepers else ", given back"
        return f"<gpuwm.{what}: {len(self)} blocks of the {self._region.label}{given_back}>"

    def __len__(self) -> int:
        return sum(count.value for count in self._counts)

    @functools.cached_property
    def _entries(self) -> list[int]:
        """Of each block: its number, then its generation."""
        entries = memoryview(self._blocks).cast("B").cast("I")[: len(self) * 2]
        return entries.tolist()

    def keys(self) -> bytes:
        """The keys of the blocks, 24 bytes each."""
        keys = (abi_blocks.BlockKey * len(self))()
        for n in range(len(self)):
            block = ctypes.byref(self._blocks, n * abi_blocks.BLOCK_BYTES)
            key = ctypes.byref(keys, n * abi_blocks.KEY_BYTES)
            self._region.call("gpuwm_block_key_of", block, key)
        return bytes(keys)

    def take(self, function: str, keys: bytes, milliseconds: int) -> int:
        """Takes blocks for the keys that have none yet. Returns how many were taken now."""
        first = len(self)
        if not self._counts or self._counts[-1].value:
            self._counts.append(ctypes.c_size_t())
        count = self._counts[-1]
        self._region.call(
            function,
            keys[first * abi_blocks.KEY_BYTES :],
            len(self._blocks) - first,
            milliseconds,
            ctypes.byref(self._blocks, first * abi_blocks.BLOCK_BYTES),
            ctypes.byref(count),
        )
        return count.value

    def cancel(self) -> None:
        """Gives back what was taken so far, by a call that has failed."""
        with contextlib.suppress(errors.Error):
            self._give(self._back)

    def _give(self, function: str, stream: Any = None) -> None:
        """Calls a function after which this process has the blocks no more. If the function fails,
        the process still has them."""
        keeper = self._pop()
        try:
            if not len(self):
                return
            if stream is None:
                self._region.call(function, self._blocks, len(self))
            else:
                handle = memory.stream_of(stream)
                self._region.call(f"{function}_in_stream", self._blocks, len(self), handle)
        except (errors.Error, TypeError):
            self._keepers.append(keeper)
            raise

    def _pop(self) -> Keeper:
        try:
            return self._keepers.pop()
        except IndexError:
            raise errors.Closed(self._gone) from None


class Reserved(Claim):
    """Blocks to fill. Write their bytes, then `publish` them. If it is collected before, or its
    `with` block ends before, the blocks are free again.

    numbers: of the blocks, in the order of the keys. None: the key has a block already, or somebody
    is filling one. If there was no room for all keys, there are fewer numbers than keys.
    """

    _gone = "the blocks were published or abandoned already"
    _back = "gpuwm_blocks_abandon"

    @functools.cached_property
    def numbers(self) -> list[int | None]:
        none = abi_blocks.NONE
        return [None if number == none else number for number in self._entries[::2]]

    def publish(self, stream: Any = None) -> None:
        """The bytes are there: every process may hold the blocks.

        - stream: a torch.cuda.Stream, or the number of a CUstream: when the GPU gets to this place
          in the stream. None: now.

        Raises Unsupported (a stream, on host), and Busy while the stream is being captured."""
        self._give("gpuwm_blocks_publish", stream)

    def abandon(self) -> None:
        """The bytes will not come: the blocks are free. A GPU must not write there any more."""
        self._give(self._back)

    def __enter__(self) -> Reserved:
        return self

    def __exit__(self, *_: object) -> None:
        """Gives back what was not published, when the GPU is idle."""
        if self._keepers:
            memory.settle(self._region)
            self.abandon()


class Held(Claim):
    """Blocks to read, which stay as they are until `release`. If it is collected before, they are
    released when the GPU is idle.

    numbers: of the blocks, in the order of the keys.
    """

    _gone = "the blocks were released already"
    _back = "gpuwm_blocks_release"

    @functools.cached_property
    def numbers(self) -> list[int]:
        return self._entries[::2]

    @property
    def these(self) -> bytes:
        """Plain data that names the blocks, for `Blocks.hold_these` in another process. Keep them
        until that process has them."""
        return bytes.fromhex(self._region.id) + self._named()

    def _named(self) -> bytes:
        return bytes(self._blocks)[: len(self) * abi_blocks.BLOCK_BYTES]

    def release(self, stream: Any = None) -> None:
        """This process has read the blocks.

        - stream: a torch.cuda.Stream, or the number of a CUstream: when the GPU gets to this place
          in the stream. None: now.

        Raises Unsupported (a stream, on host), and Busy while the stream is being captured."""
        self._give(self._back, stream)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        """Releases them, unless they were released: on a GPU in torch's current stream there, or,
        if other GPUs read them too, when these are idle."""
        if not self._keepers:
            return
        if self._region.reached:
            memory.settle(self._region)
            self.release()
        else:
            self.release(memory.current_stream(self._region))


def named(region: Region, data: bytes) -> Held:
    """The blocks that `Held.these` names, which are not held yet."""
    if not isinstance(data, bytes):
        raise TypeError(f"these={type(data).__name__}: give the bytes of Held.these")
    size = len(data) - REGION_BYTES
    if size < 0 or size % abi_blocks.BLOCK_BYTES:
        raise errors.Invalid(f"{len(data):,} bytes name no blocks", "give the bytes of Held.these")
    theirs = data[:REGION_BYTES].hex()
    if theirs != region.id:
        raise errors.Invalid(f"the blocks are of the block cache {theirs}", f"this is {region.id}")
    held = Held(region, size // abi_blocks.BLOCK_BYTES)
    ctypes.memmove(held._blocks, data[REGION_BYTES:], size)
    return held


def hold_named(held: Held, milliseconds: int) -> Held:
    count = len(held._blocks)
    held._region.call("gpuwm_blocks_hold_these", held._blocks, count, milliseconds)
    held._counts = [ctypes.c_size_t(count)]
    return held
