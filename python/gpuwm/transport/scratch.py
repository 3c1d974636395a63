"""Scratch: memory that one process uses at a time."""

from __future__ import annotations

import builtins
import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _connection, errors
from .._c import abi_region, devices, lib, threads
from .._client import Client
from . import memory, regions

if TYPE_CHECKING:
    from torch import Tensor


class Scratch(regions.Opened):
    """Memory on one device that the processes of a user map, and that one of them holds at a time:
    for activations of engines that never run together. gpuwmd hands it on in the order in which
    they have asked. When a process exits, gpuwmd hands on what it held. The region belongs to a
    user: it stays until `Scratch.remove`.

    That is a rule between processes that trust each other: all of them can write the memory.
    """

    _kind = abi_region.SCRATCH

    @classmethod
    def create(
        cls,
        name: str | None,
        *,
        device: Any = devices.HOST,
        bytes: int,  # noqa: A002
        clear: bool = False,
        wait: float | None = None,
        client: Client | None = None,
    ) -> Scratch:
        """Creates a scratch region, and opens it.

        - name: by which other processes can open it. None: by its id only.
        - device: "host", a UUID, "cuda:N"…
        - bytes: is rounded up to the granularity of the device.
        - clear: a process that holds the memory after another one finds zeros in it.
        - wait: as for Pool.

        Raises Exists (the name is taken), NoRoom, Quota, Refused and NoDevice."""
        user, wait_ms = _connection.for_wait(lib.milliseconds(wait, "wait"), client)
        options = abi_region.RegionOptions(
            name=lib.maybe_text(name, "name"),
            device=lib.maybe_text(devices.resolve(device, user), "device"),
            kind=abi_region.SCRATCH,
            writers=abi_region.WRITERS_MANY,
            owner=abi_region.OWNER_UID,
            bytes=lib.count(bytes, "bytes", lib.UINT64_MAX),
            clear=bool(clear),
            wait_ms=wait_ms,
        )
        return cls._of(regions.create(options, user))

    @classmethod
    def open(cls, name: str, *, wait: float | None = None, client: Client | None = None) -> Scratch:
        """Opens a scratch region by its name or id. wait: as for Pool. Raises NotFound, Quota and
        Refused."""
        flags = abi_region.WRITE
        return cls._of(regions.opened_as(abi_region.SCRATCH, name, flags, client, wait))

    @classmethod
    def _of(cls, region: regions.Region) -> Scratch:
        made = cls.__new__(cls)
        made._begin(region)
        return made

    def __enter__(self) -> Scratch:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "a gpuwm.Scratch is open in this process: send its id, and Scratch.open() there"
        )

    @property
    def device(self) -> str:
        """The device, "host" or a UUID."""
        return self._region.device

    @property
    def nbytes(self) -> int:
        return self._region.nbytes

    @property
    def clear(self) -> bool:
        """Whether a new holder finds the memory cleared."""
        return self._region.clear

    # ---- holding ----

    def acquire(self, wait: float | None = math.inf) -> None:
        """Waits until this process holds the memory.

        - wait: seconds. None: not at all.

        Raises TimedOut, which names the holder, and Already if this process holds the memory, or
        another thread of it waits. If Ctrl-C ends the wait, the memory is given back when the turn
        comes."""
        turn = _Turn(self._held(), wait)
        try:
            threads.wait_for(turn.take)
        except BaseException:
            turn.leave()
            raise

    async def acquire_async(self, wait: float | None = math.inf) -> None:
        """Does what `acquire` does, without blocking the event loop. If it is cancelled, the memory
        is given back when the turn comes."""
        turn = _Turn(self._held(), wait)
        try:
            await threads.awaited(turn.take)
        except BaseException:
            turn.leave()
            raise

    def release(self) -> None:
        """Waits until the GPU is idle, as far as this process uses it, and gives the memory to the
        next process. Raises Already if this process does not hold it, and Busy while a stream is
        being captured."""
        region = self._held()
        threads.wait_for(lambda: region.call("gpuwm_scratch_release"))

    @contextlib.contextmanager
    def held(self, wait: float | None = math.inf) -> Iterator[builtins.memoryview | Tensor]:
        """Holds the memory in a `with` block, which gets it: a memoryview on host, which ends with
        the block, else a tensor of bytes."""
        self.acquire(wait)
        try:
            if devices.on_cpu(self.device):
                view = self.memoryview()
                try:
                    yield view
                finally:
                    with contextlib.suppress(BufferError):  # somebody has kept a view of it
                        view.release()
            else:
                yield self.tensor()
        finally:
            self.release()

    # ---- its memory ----

    def tensor(self) -> Tensor:
        """A tensor of torch over the memory: uint8, in one dimension. Use it only while this
        process holds the memory. The region stays open while the tensor lives."""
        return memory.tensor_of(self._held(), (self.nbytes,))

    def memoryview(self) -> builtins.memoryview:
        """The memory. Raises Unsupported on a GPU."""
        return memory.view_of(self._held(), 0, self.nbytes)


class _Turn:
    """A request for the memory. Whoever asked may have gone when its turn comes."""

    def __init__(self, region: regions.Region, wait: float | None) -> None:
        self._region = region
        self._milliseconds = lib.milliseconds(wait, "wait")
        self._lock = threading.RLock()  # a signal handler may leave
        self._has_come = self._is_left = False

    def take(self) -> None:
        self._region.call("gpuwm_scratch_acquire", self._milliseconds)
        with self._lock:
            self._has_come = True
            self._give_back()

    def leave(self) -> None:
        with self._lock:
            self._is_left = True
            self._give_back()

    def _give_back(self) -> None:
        if self._has_come and self._is_left:
            self._has_come = False
            with contextlib.suppress(errors.Error):
                self._region.call("gpuwm_scratch_release")
