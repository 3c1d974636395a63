"""What the two halves of the connector send each other through vLLM. All of it can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Copies:
    """Blocks to copy. keys: one after the other. blocks: vLLM's numbers, one for each key."""

    keys: bytearray = field(default_factory=bytearray)
    blocks: list[int] = field(default_factory=list)

    def add(self, keys: bytes, blocks: list[int]) -> None:
        self.keys += keys
        self.blocks += blocks


@dataclass
class Step:
    """From the scheduler's half to each worker's, with a step.

    - number: of the step, from 1.
    - identities: of all ranks, with which the keys were computed; empty if there is nothing to
      copy.
    - loads: before the step is computed. saves: afterwards.
    - settled: the newest step whose outcome the scheduler's half knows.
    """

    number: int = 0
    identities: tuple[bytes, ...] = ()
    loads: Copies = field(default_factory=Copies)
    saves: Copies = field(default_factory=Copies)
    settled: int = 0


@dataclass
class Report:
    """From the workers to the scheduler's half, with the outcome of a step. number: of the step.
    failed: whether a rank could not load what it was to load."""

    number: int
    failed: bool = False

    def aggregate(self, other: Report) -> Report:
        return Report(min(self.number, other.number), self.failed or other.failed)


@dataclass
class Rank:
    """From a worker to the scheduler's half, once the worker has its KV cache.

    - region: the name of its region. block_bytes: of its blocks.
    - page: where its identity is (`page`).
    """

    region: str
    block_bytes: int
    page: str
