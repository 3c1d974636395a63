"""The tensors of one message, on their way into pools."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .. import errors
from .._c import devices, lib
from . import rooms
from .deadlines import Deadline
from .fill import Filling
from .layouts import Layout
from .pools import Pool
from .refs import ChunkRef, Mode, TensorRef
from .regions import Region

Pools = Pool | Iterable[Pool] | None


def pools_of(pool: Pools) -> tuple[Pool, ...]:
    """One pool, or one for each device."""
    if pool is None:
        return ()
    found = tuple(pool) if isinstance(pool, Iterable) else (pool,)
    if not all(isinstance(each, Pool) for each in found):
        raise lib.wrong("pool", pool, "a gpuwm.Pool, or several")
    return found


class _Item(NamedTuple):
    """A tensor that waits for room, and its reference, which has no token before it is offered."""

    layout: Layout
    tensor: Any
    ref: ChunkRef
    place: str


_Taken = tuple[_Item, Filling]


class Sending:
    """Collects the tensors of a message, puts all of them into pools in one go, and can take all of
    them back.

    The room of a pool is taken in one step. Several pools have their turns in the order of their
    ids. So two messages never wait for each other.
    """

    def __init__(
        self,
        pools: tuple[Pool, ...],
        deadline: Deadline,
        readers: Iterable[int] | int = (),
        others: int | None = None,
    ) -> None:
        self._pools = pools
        self._deadline = deadline
        self._to = readers if isinstance(readers, int) else tuple(readers), others
        self._items: dict[Pool, list[_Item]] = {}
        self.made: list[TensorRef] = []  # what withdraw() takes back

    def add(self, layout: Layout, tensor: Any, mode: Mode, place: str = "") -> ChunkRef | None:
        """Collects a tensor for the pool on its device, or with the mode "default" for the pool on
        host. Returns the reference that it will have, or None if there is no such pool."""
        if not self._pools:
            return None
        source = self._pools[0]._source(tensor)
        wanted = source if mode == "pool" else devices.HOST
        for pool in self._pools:
            if pool.device == wanted:
                break
        else:
            return None
        ref = ChunkRef(b"", pool._held().client.socket, layout, (mode, pool.device, source))
        self._items.setdefault(pool, []).append(_Item(layout, tensor, ref, place))
        return ref

    def put(self) -> None:
        """Waits for room, and fills and offers what was collected. Raises PoolFull at the deadline,
        and NoRoom at once if there can never be room."""
        taken: list[_Taken] = []
        try:
            for pool, items in self._in_order():
                try:
                    found = rooms.waited(*self._wanted(pool, items))
                except errors.Error as error:
                    _explain(error, items, pool)
                    raise
                taken += zip(items, found, strict=True)
            self._hand_over(taken)
        finally:
            _give_back(taken)

    async def aput(self) -> None:
        """Does the same, without blocking the event loop."""
        taken: list[_Taken] = []
        try:
            for pool, items in self._in_order():
                try:
                    found = await rooms.awaited(*self._wanted(pool, items))
                except errors.Error as error:
                    _explain(error, items, pool)
                    raise
                taken += zip(items, found, strict=True)
            self._hand_over(taken)
        finally:
            _give_back(taken)

    def _in_order(self) -> Iterable[tuple[Pool, list[_Item]]]:
        if len(self._items) < 2:
            return self._items.items()
        return sorted(self._items.items(), key=lambda each: each[0].id)

    def _wanted(self, pool: Pool, items: list[_Item]) -> tuple[Region, list[Layout], int]:
        return pool._held(), [item.layout for item in items], self._deadline.milliseconds()

    def _hand_over(self, taken: list[_Taken]) -> None:
        """All are filled before one is offered."""
        for item, filling in taken:
            try:
                filling.fill(item.tensor)
            except errors.Error as error:
                _name(error, item.place)
                raise
        for item, filling in taken:
            item.ref.token = filling.hand_over(*self._to)
            self.made.append(item.ref)
        self._items.clear()

    def withdraw(self) -> None:
        """Takes all back."""
        for ref in self.made:
            with contextlib.suppress(errors.Error):
                ref.withdraw()
        self.made.clear()


def _give_back(taken: list[_Taken]) -> None:
    """Gives back the room in which nothing was offered."""
    for _, filling in taken:
        filling.__exit__()


def _explain(error: errors.Error, items: list[_Item], pool: Pool) -> None:
    """Names the place of the tensor for which there is no room, or says that there are several."""
    large = [item for item in items if len(items) == 1 or item.layout.nbytes > pool.nbytes]
    if large:
        _name(error, large[0].place)
    elif isinstance(error, errors.NoRoom):
        _name(error, f"the {len(items):,} tensors of one message")


@contextlib.contextmanager
def naming(place: str) -> Iterator[None]:
    """Puts the place into the message of an error."""
    try:
        yield
    except errors.Error as error:
        _name(error, place)
        raise
    except Exception as error:  # of torch
        if not place:
            raise
        raise errors.Error(f"{place}: {type(error).__name__}: {error}") from error


def _name(error: errors.Error, place: str) -> None:
    if place:
        error.message = f"{place}: {error.message}"
        error.args = (error.message, error.detail)
