"""Stands in for serving.py where there is no GPU and no vLLM: streams of tokens, a scheduler that
pauses as vLLM's does, and the ranks' half of a switch, with versions of a few KiB on host memory.

$FAKE_FAULT, with commas, makes it go wrong: "fails" (a request), "short" (an answer), "stale" (an
exchange does nothing), "late" (a token of the old version comes after the switch), "mixed" (nothing
waits for requests to end), "lenient" (a version that is not there is taken), "blind" (without a
gpuwmd it says something else), "stands" (no token comes after a switch)."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import gpuwm

import fake
import serving
from engine import Options, take_options, tell

STEP_S = 0.001
RESTART_S = 1.0  # so long a call waits for a gpuwmd that went away; 30 s in a real engine
VOCABULARY = 128256
FAULTS = os.environ.get("FAKE_FAULT", "").split(",")


@dataclasses.dataclass
class Asked:
    left: int
    pieces: asyncio.Queue[serving.Piece] = dataclasses.field(default_factory=asyncio.Queue)


class Engine:
    """AsyncLLM's methods that serving.py and a switch call."""

    def __init__(self, llm: dict[str, Any]) -> None:
        self._llm = llm
        self._client = gpuwm.connect(restart=RESTART_S)
        self._mapping = gpuwm.attach(llm["model_loader_extra_config"]["ref"], client=self._client)
        self._held = self._mapping.numpy("weight")
        self._other: Any = None
        self._moved = False
        self._mode = ""  # of the pause
        self._thread = asyncio.Lock()  # one runs the model and obeys calls
        self._waiting: list[Asked] = []
        self._running: list[Asked] = []
        self._late = 0
        self._task = asyncio.create_task(self._steps())

    def _half(self) -> int:
        """Which checkpoint the bytes in memory are of."""
        first = fake.made({**self._llm, "model": "half-1"})
        return 1 if bytes(self._held) == bytes(first) else 2

    async def _steps(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            async with self._thread:
                if self._mode == "keep":
                    continue
                if not self._mode:
                    self._running += self._waiting
                    self._waiting.clear()
                self._step()

    def _step(self) -> None:
        half = self._half()
        if self._late:
            half, self._late = 3 - half, self._late - 1
        token = 7 + (half - 1) * VOCABULARY // 2
        for asked in self._running:
            asked.left -= 1
            reason = None if asked.left else "length"
            asked.pieces.put_nowait(([token], time.monotonic(), reason))
        self._running = [asked for asked in self._running if asked.left]

    async def generate(self, number: int, tokens: int) -> AsyncIterator[serving.Piece]:
        if "fails" in FAULTS and number == 6:
            raise RuntimeError("the engine is dead")
        asked = Asked(tokens - ("short" in FAULTS and number == 5))
        self._waiting.append(asked)
        reason = None
        while reason is None:
            piece = await asked.pieces.get()
            reason = piece[2]
            yield piece

    # ---- a switch ----

    async def sleep(self, level: int, mode: str) -> None:
        assert (level, mode) == (0, "wait")
        self._mode = mode
        while self._running and "mixed" not in FAULTS:
            await asyncio.sleep(STEP_S)

    async def pause_generation(self, mode: str, clear_cache: bool) -> None:
        assert (mode, clear_cache) == ("keep", True)
        self._mode = mode
        async with self._thread:
            pass

    async def wake_up(self, tags: list[str]) -> None:
        assert tags == ["scheduling"]
        if "stands" not in FAULTS:
            self._mode = ""
        self._late = "late" in FAULTS

    async def is_sleeping(self) -> bool:
        return bool(self._mode) and "stands" not in FAULTS

    async def collective_rpc(self, method: str, args: tuple[str, ...]) -> list[Any]:
        async with self._thread:
            try:
                found = await asyncio.to_thread(getattr(self, method), *args)
            except gpuwm.Error as error:
                blind = "blind" in FAULTS and isinstance(error, gpuwm.Unreachable)
                found = {
                    "error": "Mismatch" if blind else type(error).__name__,
                    "message": error.message,
                    "detail": error.detail,
                }
        return [{"rank": 0, **found}]

    def gpuwm_prepare(self, token: str, ref: str, verify: str, take_over: str) -> dict[str, Any]:
        if "lenient" in FAULTS and ref.endswith("@none"):
            ref = self._mapping.version.id
        self._other = gpuwm.attach(ref, client=self._client)
        self._other.verify()
        return {}

    def gpuwm_prepared(self, token: str) -> dict[str, Any]:
        return {**said(self._other), "before": said(self._mapping), "pending": False}

    def gpuwm_commit(self, token: str) -> dict[str, Any]:
        if "stale" in FAULTS:
            return said(self._other)
        self._mapping.exchange(self._other)
        self._moved = not self._moved
        return said(self._mapping)

    def gpuwm_settle(self, token: str, outcome: str) -> dict[str, Any]:
        if outcome == "old" and self._moved:
            self._mapping.exchange(self._other)
        if self._other is not None:
            self._other.drop()
        self._other, self._moved = None, False
        return said(self._mapping)


def said(mapping: Any) -> dict[str, Any]:
    return {"version": str(mapping.version), "id": mapping.version.id}


def generate(engine: Engine, number: int, tokens: int) -> AsyncIterator[serving.Piece]:
    return engine.generate(number, tokens)


async def run(options: Options) -> None:
    serving.AFTER_S = 2.0
    engine = Engine(options.llm)
    tell("started", seconds={"AsyncLLM()": 0.1})
    await serving.serve(engine, options, generate)


if __name__ == "__main__":
    asyncio.run(run(take_options()))
