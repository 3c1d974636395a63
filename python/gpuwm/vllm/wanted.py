"""A server of vLLM that nobody uses parks when another engine wants its room, and wakes with its
next request.

    GPUWM_PARK_WHEN_WANTED=30 vllm serve MODEL … --enable-sleep-mode --middleware gpuwm.vllm.Control

gpuwmd sends the event `wanted` if only engines that are awake stand in the way of another one
(docs/how-to/tiers.md). The server answers when it has had no request (POST) for so many seconds.
A request that finds it parked wakes it, and waits in turn for the GPU. If the engine can't wake,
the request gets the reason, and the next one tries again. An engine that an operator has parked
waits for the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from .. import errors
from .._connection import connect
from .gate import ask_ranks

log: logging.Logger = logging.getLogger("vllm.gpuwm")

VARIABLE = "GPUWM_PARK_WHEN_WANTED"
AGAIN_S = 5.0  # until gpuwmd is asked again for events, after an error


def idle_seconds(vllm_config: Any) -> float | None:
    """What the variable says; None: nothing. Raises Invalid, and Unsupported if this engine could
    not park, or if this process does not see all of its requests."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise errors.Invalid(f"{VARIABLE} is {said!r}", "seconds without a request: 30")
    if not vllm_config.model_config.enable_sleep_mode:
        raise errors.Unsupported(f"{VARIABLE} needs sleep mode", "add --enable-sleep-mode")
    if getattr(vllm_config.parallel_config, "_api_process_count", 1) > 1:
        raise errors.Unsupported(
            f"{VARIABLE} with several API servers: none of them sees the requests of the others",
            "start it with --api-server-count 1",
        )
    return seconds


class Idle:
    """Whether a server has requests, and what it does without. park, wake: of the engine, under the
    lock `one`; park returns False if it slept already."""

    def __init__(
        self,
        seconds: float,
        one: asyncio.Lock,
        park: Callable[[], Awaitable[bool]],
        wake: Callable[[], Awaitable[None]],
    ) -> None:
        self._seconds = seconds
        self._one = one
        self._park = park
        self._wake = wake
        self._requests = 0
        self._since = time.monotonic()
        self.parked: bool = False  # by itself, and not by an operator

    @contextlib.asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Around each request. Raises what the wake raises."""
        self._requests += 1
        try:
            await self._wake_up()
            yield
        finally:
            self._requests -= 1
            self._since = time.monotonic()

    async def watch(self, client: Any) -> None:
        """Answers `wanted` until it is cancelled."""
        while True:
            try:
                ranks = await ask_ranks(client, "gpuwm_asleep")
                devices = {rank["device"] for rank in ranks}
                gpuwmd = await asyncio.to_thread(connect)
                async for event in gpuwmd.events():
                    if event.kind == "wanted" and event.data["device"] in devices:
                        await self.answer(event.data.get("until_ms"))
            except errors.Error as error:
                log.warning("gpuwm: this engine does not hear that its room is wanted: %s", error)
            await asyncio.sleep(AGAIN_S)

    async def answer(self, until_ms: float | None) -> None:
        """Parks when there was no request for long enough, unless nobody wants the room by then."""
        until = math.inf if until_ms is None else until_ms / 1000
        while (left := self._left()) > 0:
            if time.time() + left > until:
                return
            await asyncio.sleep(left)
        try:
            async with self._one:
                if self._requests == 0 and await self._park():
                    self.parked = True
                    log.info("gpuwm: parked: another engine wants the room")
            if self._requests > 0:  # they came meanwhile
                await self._wake_up()
        except Exception as error:  # vLLM's own errors have no common base class
            log.warning("gpuwm: this engine did not make way for another one: %s", error)

    def _left(self) -> float:
        if self._requests > 0:
            return max(self._seconds, 0.001)
        return self._since + self._seconds - time.monotonic()

    async def _wake_up(self) -> None:
        if not self.parked:
            return
        async with self._one:
            if self.parked:
                await self._wake()
                self.parked = False
