"""Blocks: memory that several processes fill and read, found by keys."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import _connection, errors
from .._c import abi_blocks, abi_region, devices, lib
from .._client import Client
from . import claims, memory, regions, rooms
from .claims import Held, Reserved
from .deadlines import Deadline

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray
    from torch import Tensor

T = TypeVar("T")
Keys = bytes | Iterable[bytes]

_KEY_BYTES = abi_blocks.KEY_BYTES
# How much earlier than it was told a call may stop to wait, as its clock counts milliseconds.
_EARLY_MS = 2
# How long open_or_create waits for another process that makes the region, and how long it sleeps
# between two looks.
# A GPU takes seconds to make a region that fills it.
_MADE_S, _NAP_S = 60, 0.01


class BlocksFigures(NamedTuple):
    """How many blocks there are, and what they are now. `ready` leaves out those that are held."""

    blocks: int
    free: int
    owned: int
    ready: int
    held: int


class Blocks(regions.Opened):
    """Blocks of one size on one device, which the processes of a user share as a cache. Each has a
    key: 24 bytes that stand for its bytes, a digest of 16 bytes and 8 of another digest. A block is
    found only if both are equal.

    A process that has bytes reserves blocks, writes them, and publishes them. A process that needs
    the bytes holds the blocks, reads them, and releases them. When no block is free, the one that
    was wanted longest ago makes room. A block that is held stays. The region belongs to a user: it
    stays until `Blocks.remove`.

    Keys are one bytes object with 24 bytes for each key, or a list of such keys. Several threads
    may make all calls at once. Only `create`, `open` and `close` ask gpuwmd.
    """

    _kind = abi_region.BLOCKS

    @classmethod
    def create(
        cls,
        name: str | None,
        *,
        device: Any = devices.HOST,
        blocks: int,
        block_bytes: int,
        wait: float | None = None,
        client: Client | None = None,
    ) -> Blocks:
        """Creates a region of blocks, and opens it for writing.

        - name: by which other processes can open it. None: by its id only.
        - device: "host", a UUID, "cuda:N"…
        - blocks: how many, up to 262,144.
        - block_bytes: of each, a multiple of 256.
        - wait: as for Pool.

        Raises Exists (the name is taken), NoRoom, Quota, Refused and NoDevice."""
        user, wait_ms = _connection.for_wait(lib.milliseconds(wait, "wait"), client)
        options = abi_region.RegionOptions(
            name=lib.maybe_text(name, "name"),
            device=lib.maybe_text(devices.resolve(device, user), "device"),
            kind=abi_region.BLOCKS,
            writers=abi_region.WRITERS_MANY,
            owner=abi_region.OWNER_UID,
            blocks=lib.count(blocks, "blocks", abi_blocks.BLOCKS_MAX),
            block_bytes=lib.count(block_bytes, "block_bytes", lib.UINT64_MAX),
            wait_ms=wait_ms,
        )
        return cls._of(regions.create(options, user))

    @classmethod
    def open(
        cls,
        name: str,
        *,
        write: bool = True,
        look: bool = False,
        wait: float | None = None,
        client: Client | None = None,
    ) -> Blocks:
        """Opens a region of blocks by its name or id.

        - write: Refused if this user may only read.
        - look: do not map the memory, and do not need its GPU: for a process that looks keys up and
          holds blocks for others. It can't reserve.
        - wait: as for Pool.

        Raises NotFound and Quota."""
        flags = abi_region.LOOK if look else abi_region.WRITE if write else 0
        return cls._of(regions.opened_as(abi_region.BLOCKS, name, flags, client, wait))

    @classmethod
    def open_or_create(
        cls,
        name: str,
        *,
        device: Any = devices.HOST,
        blocks: int,
        block_bytes: int,
        wait: float | None = None,
        client: Client | None = None,
    ) -> Blocks:
        """Opens the region for writing, or creates it. Any number of processes may do that at once.
        wait: as for Pool.

        Raises Mismatch if the region that is there has blocks of another size, or is on another
        device. It may have another number of blocks."""
        quota = Deadline(wait)
        user, _ = _connection.for_wait(quota.milliseconds(), client)
        wanted = devices.resolve(device, user) or devices.HOST
        blocks = lib.count(blocks, "blocks", abi_blocks.BLOCKS_MAX)
        block_bytes = lib.count(block_bytes, "block_bytes", lib.UINT64_MAX)
        deadline = Deadline(_MADE_S)
        while True:
            try:
                return _checked(cls.open(name, wait=quota.left(), client=user), wanted, block_bytes)
            except (errors.NotFound, errors.Ended):
                pass
            except errors.NotYet:  # another process makes it
                if deadline.left() == 0:
                    raise
                time.sleep(_NAP_S)
                continue
            try:
                return cls.create(
                    name,
                    device=wanted,
                    blocks=blocks,
                    block_bytes=block_bytes,
                    wait=quota.left(),
                    client=user,
                )
            except errors.Exists:  # it was made in between, or this user may not see it
                if deadline.left() == 0:
                    raise
                time.sleep(_NAP_S)

    @classmethod
    def _of(cls, region: regions.Region) -> Blocks:
        made = cls.__new__(cls)
        made._begin(region)
        return made

    def _size(self) -> str:
        return f"{self.blocks:,} blocks of {self.block_bytes:,} bytes"

    def __enter__(self) -> Blocks:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "a gpuwm.Blocks is open in this process: send its id, and Blocks.open() there"
        )

    # ---- looking ----

    @property
    def device(self) -> str:
        """The device, "host" or a UUID."""
        return self._region.device

    @property
    def blocks(self) -> int:
        return self._region.blocks

    @property
    def block_bytes(self) -> int:
        return self._region.block_bytes

    def figures(self) -> BlocksFigures:
        """How many blocks are free, owned, ready and held."""
        found = abi_blocks.BlocksFigures()
        self._held().call("gpuwm_blocks_figures", ctypes.byref(found))
        return BlocksFigures(found.blocks, found.free, found.owned, found.ready, found.held)

    def find(self, keys: Keys) -> int:
        """How many of the first keys have blocks that are published. They count as wanted now."""
        return self._counted("gpuwm_blocks_find", keys)

    def drop(self, keys: Keys) -> int:
        """Frees the published blocks of these keys, unless they are held. Returns how many."""
        return self._counted("gpuwm_blocks_drop", keys)

    def _counted(self, function: str, keys: Keys) -> int:
        data, count = keys_of(keys)
        found = ctypes.c_size_t()
        self._held().call(function, data, count, ctypes.byref(found))
        return found.value

    # ---- filling and reading ----

    def reserve(self, keys: Keys, wait: float | None = None) -> Reserved:
        """Reserves a block for each key, to fill it. There are fewer blocks than keys if the room
        does not suffice.

        - wait: seconds to wait if there is no room for the first key that needs a block. None: not
          at all.

        Raises PoolFull if there is no room: the message names who has most of it. Raises Refused if
        this process may not write."""
        data, count = keys_of(keys)
        deadline = Deadline(wait)
        reserved = Reserved(self._held(), count)
        try:
            _patiently(lambda ms: reserved.take("gpuwm_blocks_reserve", data, ms), deadline)
        except errors.NotYet as error:
            raise rooms.full(error) from None
        except BaseException:
            reserved.cancel()
            raise
        return reserved

    def hold(self, keys: Keys, wait: float | None = None) -> Held:
        """Holds the blocks of the first keys, up to the first key that has none.

        - wait: seconds to wait for blocks that are being filled. None: not at all."""
        data, count = keys_of(keys)
        deadline = Deadline(wait)
        held = Held(self._held(), count)
        try:
            _hold(held, data, deadline)
        except BaseException:
            held.cancel()
            raise
        return held

    def hold_these(self, these: bytes, wait: float | None = None) -> Held:
        """Holds the blocks that another process names by `Held.these`: all, or none. Raises Lost if
        one is not there any more, and NotYet if one is still being filled after `wait` seconds."""
        deadline = Deadline(wait)
        named = claims.named(self._held(), these)
        return _patiently(lambda ms: claims.hold_named(named, ms), deadline)

    def get_or_put(
        self, key: bytes, make: Callable[[Any], object], wait: float | None = math.inf
    ) -> Held:
        """Holds the block of a key. If there is none, one process writes it by `make(memory)`, and
        the others wait for that process.

        - make: gets a memoryview on host, else a tensor of bytes, to be written in torch's current
          stream.
        - wait: seconds to wait for another process that makes it, or for room.

        Raises TimedOut, PoolFull, and what `make` raises."""
        lib.function(make, "make", "a function that writes into the memory that it gets")
        data, count = keys_of(key)
        if count != 1:
            raise errors.Invalid(f"get_or_put with {count:,} keys", "one key")
        deadline = Deadline(wait)
        while True:
            held = self.hold(data, deadline.left())
            if len(held):
                return held
            made = self._put(data, make, deadline)
            # What was just written comes when the GPU gets there, however late it is.
            held = self.hold(data, math.inf if made else None)
            if len(held):
                return held
            if deadline.left() == 0:
                raise errors.TimedOut(
                    f"the block of the key {data.hex()} did not come into the {self._now().label}",
                    "another process fills it, or evicts it at once: wait longer",
                )

    def _put(self, key: bytes, make: Callable[[Any], object], deadline: Deadline) -> bool:
        """Returns False if another process does it."""
        with self.reserve(key, deadline.left()) as reserved:
            number = reserved.numbers[0]
            if number is None:
                return False
            self._make(number, make)
            reserved.publish(memory.current_stream(self._now()))
            return True

    def _make(self, number: int, make: Callable[[Any], object]) -> None:
        if not devices.on_cpu(self.device):
            make(self.tensor()[number])
            return
        view = self.memoryview(number)
        try:
            make(view)
        finally:
            with contextlib.suppress(BufferError):  # somebody has kept a view of it
                view.release()

    # ---- its memory ----

    def reach(self, device: Any) -> None:
        """Lets another GPU of this process reach the blocks, over NVLink or PCIe. Raises NoDevice,
        and Unsupported if the GPUs can't reach each other."""
        region = self._held()
        region.reach(devices.resolve(device, region.client) or devices.HOST)

    def tensor(self) -> Tensor:
        """A tensor of torch over all blocks: uint8, of the shape (blocks, block_bytes). Write only
        what this process has reserved, and read only what it holds: torch does not check it. The
        region stays open while the tensor lives.

        Raises Unsupported if the region was opened to look."""
        return memory.tensor_of(self._held(), (self.blocks, self.block_bytes))

    def numpy(self) -> NDArray[uint8]:
        """The same as an array of NumPy. Raises Unsupported on a GPU."""
        return memory.array_of(self._held(), (self.blocks, self.block_bytes))

    def memoryview(self, number: int) -> builtins.memoryview:
        """The bytes of one block. Raises Unsupported on a GPU."""
        number = lib.count(number, "number", self.blocks - 1)
        return memory.view_of(self._held(), number * self.block_bytes, self.block_bytes)


def keys_of(keys: Keys) -> tuple[bytes, int]:
    """Keys as the library reads them, and how many there are."""
    if isinstance(keys, bytes):
        data = keys
    elif isinstance(keys, (bytearray, memoryview)):
        data = bytes(keys)
    else:
        data = _joined(keys)
    count, rest = divmod(len(data), _KEY_BYTES)
    if rest:
        raise errors.Invalid(
            f"keys of {len(data):,} bytes", f"{_KEY_BYTES} for each: 16 of the key, 8 of the check"
        )
    return data, count


def _joined(keys: Iterable[bytes]) -> bytes:
    wanted = f"bytes, or several of {_KEY_BYTES} bytes"
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        raise lib.wrong("keys", keys, wanted)
    each = list(keys)
    for key in each:
        if not isinstance(key, bytes):
            raise lib.wrong("keys", key, wanted)
        if len(key) != _KEY_BYTES:
            raise errors.Invalid(
                f"a key of {len(key):,} bytes", f"{_KEY_BYTES}: 16 of the key, 8 of the check"
            )
    return b"".join(each)


def _checked(found: Blocks, device: str, block_bytes: int) -> Blocks:
    """Closes it, and raises Mismatch, if it is another than was wanted."""
    label = found._region.label
    there = f"blocks of {found.block_bytes:,} bytes on {found.device}"
    if (found.device, found.block_bytes) == (device, block_bytes):
        return found
    found.close()
    raise errors.Mismatch(
        f"the {label} has {there}, and {block_bytes:,} bytes on {device} are wanted",
        "use another name, or remove it",
    )


# ---- waiting -----------------------------------------------------------------------------------


def _piece(deadline: Deadline) -> int:
    """Milliseconds: waits are short, so that Ctrl-C ends them."""
    return math.ceil(min(deadline.left(), regions.UNSEEN_S) * 1000)


def _patiently(call: Callable[[int], T], deadline: Deadline) -> T:
    """Makes `call(milliseconds)` until it succeeds, or raises NotYet at the deadline."""
    milliseconds = 0
    while True:
        try:
            return call(milliseconds)
        except errors.NotYet:
            if deadline.left() == 0:
                raise
        milliseconds = _piece(deadline)


def _hold(held: Held, keys: bytes, deadline: Deadline) -> None:
    """Holds what is there. A call that has waited to its end has met a block that is being
    filled."""
    wanted = len(keys) // _KEY_BYTES
    while len(held) < wanted:
        milliseconds = _piece(deadline)
        began = time.monotonic()
        held.take("gpuwm_blocks_hold", keys, milliseconds)
        waited = (time.monotonic() - began) * 1000
        if waited < milliseconds - _EARLY_MS or deadline.left() == 0:
            return
