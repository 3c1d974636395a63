"""Pools: memory from which a process passes tensors to others."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .. import _connection, errors
from .._c import abi_region, devices, lib
from .._client import Client
from . import frameworks, layouts, regions, rooms
from .deadlines import Deadline
from .fill import Filling
from .layouts import Layout
from .refs import MODES, ChunkRef, Mode

if TYPE_CHECKING:
    from concurrent.futures import Future

Writers = Literal["one", "many"]
Owner = Literal["process", "uid"]
_WRITERS = {"one": abi_region.WRITERS_ONE, "many": abi_region.WRITERS_MANY}
OWNERS = {"process": abi_region.OWNER_PROCESS, "uid": abi_region.OWNER_UID}


class Figures(NamedTuple):
    """What is in use now. used, free and largest_free are bytes; `free` leaves out what is still
    read; `waiting` counts callers that wait for room."""

    used: int
    free: int
    largest_free: int
    chunks: int
    waiting: int


def choice(value: str, name: str, of: dict[str, int]) -> int:
    lib.choice(value, name, of)
    return of[value]


class Pool(regions.Opened):
    """Memory on one device, of which tensors take chunks until their readers have finished.

    The pool is open until `close`, the end of its `with` block, or the end of the process.
    """

    _kind = abi_region.POOL

    def __init__(
        self,
        nbytes: int,
        device: Any = devices.HOST,
        *,
        name: str | None = None,
        chunks: int | None = None,
        writers: Writers = "one",
        owner: Owner = "process",
        ttl: float | None = None,
        wait: float | None = None,
        client: Client | None = None,
    ) -> None:
        """Creates a pool, which this process owns: only the owner can put.

        - nbytes: is rounded up to the granularity of the device.
        - device: "host", a UUID, "cuda:N"…
        - name: by which other processes can open it, besides its id.
        - chunks: how many tensors may be in it at once, up to 4,096. None: 1,024.
        - writers: "one": all other processes map it read-only. "many": processes may open it with
          `write`.
        - owner: "process": the pool ends with this process. "uid": it stays until `Pool.remove`,
          and any one process of this user may own it; that needs writers="many".
        - ttl: seconds after which a reader that has not taken its tensor counts as finished, when
          the room is needed. None: the pool waits for ever.
        - wait: how many seconds to wait if a quota of this user has no room, and versions of the
          user that are being freed will make room: gpuwmd frees nothing in its first 10 seconds.
          None: not at all.

        Raises Exists (the name is taken), NoRoom, Quota, Refused and NoDevice.
        """
        if chunks == 0:
            raise errors.Invalid("chunks=0", f"1 to {abi_region.CHUNKS_MAX:,}, or None")
        if ttl == 0:
            raise errors.Invalid("ttl=0", "more than 0, or None")
        user, wait_ms = _connection.for_wait(lib.milliseconds(wait, "wait"), client)
        options = abi_region.RegionOptions(
            name=lib.maybe_text(name, "name"),
            device=lib.maybe_text(devices.resolve(device, user), "device"),
            kind=abi_region.POOL,
            writers=choice(writers, "writers", _WRITERS),
            owner=choice(owner, "owner", OWNERS),
            bytes=lib.count(nbytes, "nbytes", lib.UINT64_MAX),
            chunks=lib.count(chunks or 0, "chunks", abi_region.CHUNKS_MAX),
            ttl_ms=max(lib.milliseconds(ttl, "ttl"), 0),
            wait_ms=wait_ms,
        )
        self._begin(regions.create(options, user))

    @classmethod
    def open(
        cls,
        name: str,
        *,
        write: bool = False,
        own: bool = False,
        wait: float | None = None,
        client: Client | None = None,
    ) -> Pool:
        """Opens a pool by its name or id. To read tensors no process needs to: the first TensorRef
        opens its pool by itself.

        - write: map its memory for writing; Refused if it has one writer.
        - own: become the owner of a pool with owner="uid"; Busy if another process owns it.
        - wait: as for Pool.
        """
        flags = (abi_region.WRITE if write else 0) | (abi_region.OWN if own else 0)
        pool = cls.__new__(cls)
        pool._begin(regions.opened_as(abi_region.POOL, name, flags, client, wait))
        return pool

    def __enter__(self) -> Pool:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a gpuwm.Pool is open in this process: send its id, and Pool.open() there")

    @property
    def device(self) -> str:
        """The device, "host" or a UUID."""
        return self._region.device

    @property
    def nbytes(self) -> int:
        return self._region.nbytes

    @property
    def owns(self) -> bool:
        """Whether this process may put."""
        return self._now().owns

    def figures(self) -> Figures:
        found = abi_region.PoolFigures()
        self._held().call("gpuwm_pool_figures", ctypes.byref(found))
        return Figures(found.used, found.free, found.largest_free, found.chunks, found.waiting)

    def drain(self, wait: float | None = math.inf) -> None:
        """Waits until nothing of the pool is in use: all readers have finished, also those that are
        late, and this process has offered or discarded all room. Others can put meanwhile.

        Raises TimedOut, which names the process that has held its tensor for longest."""
        deadline = Deadline(wait)
        milliseconds = 0
        while True:
            try:
                self._held().call("gpuwm_pool_drain", milliseconds)
                return
            except errors.TimedOut:
                if deadline.left() == 0:
                    raise
            # In short pieces, so that Ctrl-C ends the wait.
            milliseconds = math.ceil(min(deadline.left(), regions.UNSEEN_S) * 1000)

    # ---- passing a tensor on ----

    def put(
        self,
        tensor: Any,
        *,
        readers: Iterable[int] | int = (),
        others: int | None = None,
        wait: float | None = None,
        mode: Mode = "pool",
    ) -> ChunkRef:
        """Copies a tensor of torch, or an array of NumPy, into the pool, on the current stream, and
        returns the reference to send. The receivers' streams wait for the copy.

        - readers: the slots of processes that will read it (`Pool.slot` there).
        - others: how many processes read it besides these, whichever they are, up to 15. None: one,
          if no slot is named.
        - wait: seconds to wait for room. None: not at all.

        Raises PoolFull if there is no room, NoRoom if the tensor is larger than the pool, Refused
        if this process does not own the pool, and Unsupported.
        """
        lib.choice(mode, "mode", MODES)
        with self._room(self._layout_of(tensor), wait) as filling:
            filling.fill(tensor)
            return filling.offer(readers, others, mode=mode, source=self._source(tensor))

    async def aput(
        self,
        tensor: Any,
        *,
        readers: Iterable[int] | int = (),
        others: int | None = None,
        wait: float | None = math.inf,
    ) -> ChunkRef:
        """Does what `put` does, without blocking the event loop while it waits."""
        with await self._awaited(self._layout_of(tensor), wait) as filling:
            filling.fill(tensor)
            return filling.offer(readers, others, source=self._source(tensor))

    def empty(self, shape: Any, dtype: Any, wait: float | None = None) -> Filling:
        """Room for a tensor: write into its `.tensor`, then `.offer(readers, others)` it, or
        `.discard()`.

        - dtype: of torch, of NumPy (then `.tensor` is an array), or its name.
        - wait: seconds to wait for room. None: not at all.
        """
        return self._room(layouts.wanted(shape, dtype), wait)

    def empty_later(self, shape: Any, dtype: Any, wait: float | None = math.inf) -> Future[Filling]:
        """Does what `empty` does on a thread, and returns at once. If the future is cancelled, it
        leaves the line."""
        wanted = layouts.wanted(shape, dtype)
        milliseconds = lib.milliseconds(wait, "wait")
        from . import turns

        return turns.later(self._held(), (wanted,), milliseconds, operator.itemgetter(0))

    async def aempty(self, shape: Any, dtype: Any, wait: float | None = math.inf) -> Filling:
        """Does what `empty` does, without blocking the event loop."""
        return await self._awaited(layouts.wanted(shape, dtype), wait)

    def _layout_of(self, tensor: Any) -> Layout:
        found = frameworks.layout_of(tensor)
        if found is None and not frameworks.is_of_one(tensor):
            raise lib.wrong("tensor", tensor, "a tensor of torch, or an array of NumPy")
        if found is None:
            raise errors.Unsupported(
                f"a {type(tensor).__name__} can't be put into a pool",
                "plain dense tensors of torch and arrays of NumPy can",
            )
        if found.framework == "numpy" and not devices.on_cpu(self.device):
            raise errors.Unsupported(
                f"an array of NumPy can't be put into a pool on {self.device}",
                "make a tensor of it: torch.from_numpy(array)",
            )
        return found

    def _source(self, tensor: Any) -> str:
        if not layouts.is_tensor(tensor):
            return devices.HOST
        found: str = frameworks.of_torch().device_name(tensor, self._region.client)
        return found

    # ---- room ----

    def _room(self, layout: Layout, wait: float | None) -> Filling:
        milliseconds = lib.milliseconds(wait, "wait")
        try:
            return rooms.one_now(self._held(), layout)
        except errors.PoolFull:
            if not milliseconds:
                raise
        return rooms.waited(self._held(), (layout,), milliseconds)[0]

    async def _awaited(self, layout: Layout, wait: float | None) -> Filling:
        milliseconds = lib.milliseconds(wait, "wait")
        return (await rooms.awaited(self._held(), (layout,), milliseconds))[0]
