"""A version that is attached: its tensors in place, under a lease."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, overload

from . import _lease, _needs, _received, _save, _switch
from ._c import lib, threads
from ._c.handle import Handle
from ._tensors import Tensors
from ._version import Version

if TYPE_CHECKING:
    import os

    from torch.nn import Module

    from ._torch.bind import BindResult
    from ._torch.check import CheckResult


class Mapping(Tensors):
    """A version's tensors by name, shared and read-only. `gpuwm.attach` makes it.

    The memory and the lease stay until the mapping and the last tensor made from it are gone. The
    end of a `with` block and `del` give up only the mapping; its tensors live on. Any thread may
    read. After a fork the child may read what it has on host, and every call raises InChild.
    """

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        handle.mapping = weakref.ref(self)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        shard_bytes: int | None = None,
    ) -> None:
        """Writes the version, which has one rank, as safetensors files: see gpuwm.save."""
        _save.save(self, folder, overwrite=overwrite, shard_bytes=shard_bytes)

    # ---- models of torch ----

    def bind(
        self,
        model: Module,
        *,
        strict: bool = True,
        share_buffers: bool | str | Sequence[str] = False,
        private: str | Sequence[str] = (),
        guard: bool = True,
    ) -> BindResult:
        """Makes this memory the memory of the model's parameters, by name: see
        gpuwm._torch.bind.bind."""
        _needs.torch("Mapping.bind")
        from ._torch import bind as binding

        return binding.bind(
            self,
            model,
            strict=strict,
            share_buffers=share_buffers,
            private=private,
            guard=guard,
        )

    def switch(
        self,
        ref: str | None = None,
        *,
        wait: float | None = None,
        idle: bool = False,
        stale: str | Sequence[str] = (),
        key: lib.Key | None = None,
    ) -> Version:
        """Puts another version of the same layout at the same addresses, under everything that was
        made from this mapping: see gpuwm._switch.switch."""
        return _switch.switch(self, ref, wait=wait, idle=idle, stale=stale, key=key)

    def exchange(
        self,
        other: Mapping,
        *,
        idle: bool = False,
        stale: str | Sequence[str] = (),
        check: bool = False,
    ) -> Version:
        """Puts the version of another mapping at the same addresses, under everything that was made
        from this one, and this one's version at the other's. It does not need gpuwmd: see
        gpuwm._switch.exchange."""
        return _switch.exchange(self, other, idle=idle, stale=stale, check=check)

    # ---- without its memory for a while ----

    def park(self, room: int = 0) -> None:
        """Gives the memory back, and keeps its addresses: see gpuwm._lease.park."""
        _lease.park(self._held(), room)

    def unpark(
        self,
        wait: float | None = None,
        *,
        room: int | None = None,
        together: tuple[str, int] | None = None,
    ) -> None:
        """Has the memory again, at the same addresses: see gpuwm._lease.unpark."""
        _lease.unpark(self._held(), wait, room, together)

    async def unpark_async(
        self,
        wait: float | None = None,
        *,
        room: int | None = None,
        together: tuple[str, int] | None = None,
    ) -> None:
        """Does what unpark does, without blocking the event loop. If it is cancelled, the call goes
        on in its thread."""
        await threads.awaited(lambda: self.unpark(wait, room=room, together=together))

    @property
    def room(self) -> int:
        """The bytes that this process takes on the device besides the version, as gpuwmd counts
        them."""
        return _lease.room_of(self._held())

    @property
    def parked(self) -> bool:
        """Whether it is parked."""
        return _lease.is_parked(self._held())

    # ---- its end ----

    @overload
    def check(self) -> None: ...

    @overload
    def check(self, model: Module) -> CheckResult: ...

    def check(self, model: Module | None = None) -> CheckResult | None:
        """Raises Lost, with the reason, if the lease was lost; the memory stays nevertheless.
        model: look at a model instead: what of it is shared, private, or lost its sharing, see
        gpuwm._torch.check.check."""
        if model is not None:
            _needs.torch("Mapping.check of a model")
            from ._torch import check as checking

            return checking.check(self, model)
        handle = self._held()
        with handle.use() as pointer:
            lib.check(handle.library.gpuwm_mapping_check(pointer))
        return None

    def __enter__(self) -> Mapping:
        return self


# ---- multiprocessing ---------------------------------------------------------------------------

Where = tuple["str | None", str, str, int]  # socket, version, device, rank


def _reduce(mapping: Mapping) -> tuple[Callable[..., Mapping], Where]:
    where = mapping._held().where
    return _again, (where.socket, where.id, where.device, where.rank)


def _again(socket: str | None, version: str, device: str, rank: int) -> Mapping:
    client = _received.client_of(socket)
    return Mapping(_lease.take(version, device=device, rank=rank, client=client))


ForkingPickler.register(Mapping, _reduce)
