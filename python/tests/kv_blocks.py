"""What gpuwm.Blocks is for the KV connector, in the memory of one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import gpuwm

KEY_BYTES = 24
LOOKED_UP = 16  # of them; the rest is the check


@dataclass
class Slot:
    """A block: nothing, being filled, or there."""

    key: bytes = b""
    ready: bool = False
    holds: int = 0
    wanted: int = 0


@dataclass
class Memory:
    """A region, with its bytes. down: the region has ended."""

    blocks: int
    block_bytes: int
    device: str = "host"
    down: bool = False
    clock: int = 0
    slots: list[Slot] = field(default_factory=list)
    bytes: Any = None

    def __post_init__(self) -> None:
        self.slots = [Slot() for _ in range(self.blocks)]
        self.bytes = torch.zeros((self.blocks, self.block_bytes), dtype=torch.uint8)


class Claim:
    def __init__(self, numbers: list[Any], give: Callable[[int], None]) -> None:
        self.numbers, self._give = numbers, give
        self._given = False

    def _end(self, give: Callable[[int], None]) -> None:
        assert not self._given, "given back twice"
        self._given = True
        for number in self.numbers:
            if number is not None:
                give(number)


class Held(Claim):
    def release(self, stream: Any = None) -> None:
        assert stream is None
        self._end(self._give)


class Reserved(Claim):
    def __init__(self, numbers: list[Any], memory: Memory) -> None:
        super().__init__(numbers, self._publish)
        self._memory = memory

    def publish(self, stream: Any = None) -> None:
        assert stream is None
        self._end(self._publish)

    def abandon(self) -> None:
        self._end(self._abandon)

    def _publish(self, number: int) -> None:
        self._memory.slots[number].ready = True

    def _abandon(self, number: int) -> None:
        self._memory.slots[number] = Slot()


class Blocks:
    """One process's view of a region."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.block_bytes, self.device = memory.block_bytes, memory.device
        self.closed = False

    def tensor(self) -> Any:
        return self.memory.bytes

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.memory.down:
            raise gpuwm.Ended("the block cache has ended")

    def _of(self, key: bytes) -> int | None:
        """The first slot with that key, if its check is the same."""
        for number, slot in enumerate(self.memory.slots):
            if slot.key[:LOOKED_UP] == key[:LOOKED_UP]:
                return number if slot.key == key else None
        return None

    def hold(self, keys: bytes, wait: float | None = None) -> Held:
        self._check()
        numbers = []
        for key in split(keys):
            number = self._of(key)
            if number is None or not self.memory.slots[number].ready:
                break
            self._want(number).holds += 1
            numbers.append(number)
        return Held(numbers, self._let_go)

    def _let_go(self, number: int) -> None:
        assert self.memory.slots[number].holds
        self.memory.slots[number].holds -= 1

    def _want(self, number: int) -> Slot:
        self.memory.clock += 1
        slot = self.memory.slots[number]
        slot.wanted = self.memory.clock
        return slot

    def find(self, keys: bytes) -> int:
        self._check()
        found = []
        for key in split(keys):
            number = self._of(key)
            if number is None or not self.memory.slots[number].ready:
                break
            found.append(number)
        for number in reversed(found):
            self._want(number)
        return len(found)

    def reserve(self, keys: bytes, wait: float | None = None) -> Reserved:
        self._check()
        numbers: list[int | None] = []
        for key in split(keys):
            if self._of(key) is not None:
                numbers.append(None)
                continue
            number = self._room()
            if number is None:
                break
            self.memory.slots[number] = Slot(key)
            self._want(number)
            numbers.append(number)
        if not numbers:
            raise gpuwm.PoolFull("the block cache has no room")
        return Reserved(numbers, self.memory)

    def _room(self) -> int | None:
        slots = self.memory.slots
        free = [number for number, slot in enumerate(slots) if not slot.key]
        if free:
            return free[0]
        idle = [number for number, slot in enumerate(slots) if slot.ready and not slot.holds]
        return min(idle, key=lambda number: slots[number].wanted, default=None)

    # ---- what a test asks ----

    def ready(self) -> int:
        return sum(slot.ready for slot in self.memory.slots)

    def holds(self) -> int:
        return sum(slot.holds for slot in self.memory.slots)


def split(keys: bytes) -> list[bytes]:
    assert isinstance(keys, bytes)
    assert len(keys) % KEY_BYTES == 0
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]
