"""The ranks of one engine, which build a version together or not at all."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from .. import errors

# A rank that failed tells the others why before it raises. They may hang in a collective operation
# of the step that failed, so the rank waits no longer than this for them. The engine ends them when
# the rank's process has ended.
TELL_SECONDS = 10.0


class RankEnded(errors.Error):
    """Another rank has ended, or ends with an error that is not gpuwm's. Then no rank can go on,
    with or without gpuwm: each collective operation would miss that rank."""

    default_code: ClassVar[int] = errno.ECONNRESET


class Coordinator(Protocol):
    """What this module needs of an engine's group of processes: the attributes that vLLM's and
    SGLang's GroupCoordinator have."""

    rank_in_group: int
    world_size: int
    ranks: list[int]
    cpu_group: Any


class Ranks:
    """rank: of this process, among `world`. Every method is collective: all ranks call it in the
    same order, each from one thread. With one rank nothing is sent."""

    def __init__(self, coordinator: Coordinator | None = None) -> None:
        self._coordinator = coordinator
        self.rank: int = 0 if coordinator is None else coordinator.rank_in_group
        self.world: int = 1 if coordinator is None else coordinator.world_size

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in the order of the ranks. Raises RankEnded."""
        if self.world == 1:
            return [value]
        import torch.distributed

        assert self._coordinator is not None
        found: list[Any] = [None] * self.world
        group = self._coordinator.cpu_group
        with self._all_there():
            torch.distributed.all_gather_object(found, value, group=group)
        return found

    def first(self, value: Any = None) -> Any:
        """The value of rank 0. Only rank 0 needs to pass one. Raises RankEnded."""
        if self.world == 1:
            return value
        import torch.distributed

        assert self._coordinator is not None
        sent = [value]
        src, group = self._coordinator.ranks[0], self._coordinator.cpu_group
        with self._all_there():
            torch.distributed.broadcast_object_list(sent, src=src, group=group)
        return sent[0]

    def agree(self, what: str, error: BaseException | None = None) -> None:
        """Returns if no rank has an error. Raises `error` if this rank has one. Otherwise raises a
        gpuwm.Error that names a rank that has one. It is a RankEnded if that rank raises RankEnded
        or an error that is not a gpuwm.Error: such a rank does not fall back to loading without
        gpuwm.

        what: what the ranks were doing, for that message: "attach to llama@v1".
        """
        if self.world == 1:
            if error is not None:
                raise error
            return
        if error is not None:
            goes_on = isinstance(error, errors.Error) and not isinstance(error, RankEnded)
            answers = self._tell((f"{type(error).__name__}: {error}", goes_on))
            if goes_on:
                self._check_others(what, answers)
            raise error
        found = self.gather(None)
        self._check_others(what, found)
        for rank, failed in enumerate(found):
            if failed is not None:
                raise errors.Error(
                    f"rank {rank} of this engine could not {what}: {failed[0]}",
                    "so that no rank goes on",
                )

    def _check_others(self, what: str, found: list[tuple[str, bool] | None]) -> None:
        """Raises RankEnded if a rank ends, whatever the others do."""
        for rank, failed in enumerate(found):
            if failed is not None and not failed[1]:
                raise RankEnded(
                    f"rank {rank} of this engine could not {what}, and ends: {failed[0]}",
                    "the log of that rank says why",
                )

    @contextlib.contextmanager
    def _all_there(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # raised by the process group
            raise RankEnded(
                f"rank {self.rank} of this engine lost another of its {self.world} ranks: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}",
                "the log of the rank that ended says why",
            ) from error

    def _tell(self, failed: tuple[str, bool]) -> list[tuple[str, bool] | None]:
        """What all ranks sent, or an empty list if they did not answer in time."""
        found: list[tuple[str, bool] | None] = []
        teller = threading.Thread(
            target=self._gather_quietly, args=(failed, found), name="gpuwm tell", daemon=True
        )
        teller.start()
        teller.join(TELL_SECONDS)
        return list(found)

    def _gather_quietly(
        self, failed: tuple[str, bool], found: list[tuple[str, bool] | None]
    ) -> None:
        with contextlib.suppress(RankEnded):
            found.extend(self.gather(failed))
