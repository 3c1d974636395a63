"""The queue before each model, and the loop that carries out what `decision` says.

    async with turns.turn("small") as engine:
        …

`turn` waits until the model is awake, and keeps it from falling asleep until the request has ended.
All of this runs in one event loop, so nothing is locked.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Protocol

from .. import errors
from . import decision
from .decision import Decision, Standing, State
from .models import Config
from .supervisor import Engine, Group

log: logging.Logger = logging.getLogger("gpuwm.serve")

# Before a model that failed is tried again: at once, and then after twice as long each time.
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
STEADY_S = 120.0  # a failure so long after the one before counts as the first


class NotServed(errors.Error):
    """A request can't be served now. retry_after: when to try again, in seconds; None: never."""

    def __init__(self, message: str, detail: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, detail)
        self.retry_after = retry_after


class Observer(Protocol):
    """What is told of models: `metrics` counts it."""

    def waited(self, name: str, seconds: float) -> None: ...
    def moved(self, name: str, what: str, seconds: float) -> None: ...
    def failed(self, name: str) -> None: ...
    def made_room(self, name: str, waiting: str) -> None: ...


class _Line:
    """A model, and the requests that wait for it. kept_since: when requests that the engines have
    kept, or nobody's request, began to wait."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.standing = Standing(group.model)
        self.waiting: collections.deque[tuple[float, asyncio.Future[None]]] = collections.deque()
        self.kept_since: float | None = None
        self.in_flight = 0
        self.failures, self.failed_at = 0, -math.inf
        self.never = ""  # why it can't ever wake
        self.last_error = ""

    def note(self) -> None:
        """Brings the standing up to date with who waits."""
        while self.waiting and self.waiting[0][1].done():
            self.waiting.popleft()
        times = [self.kept_since] if self.kept_since is not None else []
        times += [self.waiting[0][0]] if self.waiting else []
        self.standing.waiting_since = min(times, default=None)


class Turns:
    """groups: the engines of each model. `run` has to run as long as it is in use."""

    def __init__(self, config: Config, groups: Mapping[str, Group], observer: Observer) -> None:
        self.config = config
        self._lines = {name: _Line(group) for name, group in groups.items()}
        self._observer = observer
        self._changed = asyncio.Event()
        self._moves: set[asyncio.Task[None]] = set()
        self._in_the_way: set[tuple[str, str]] = set()
        never = decision.never_fits(config.models.values(), config.budgets)
        for name, line in self._lines.items():
            line.never = never.get(name, "")
            if line.standing.model.at_start or line.standing.model.stays_awake:
                line.kept_since = time.monotonic()

    # ---- a request ----

    @contextlib.asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Engine]:
        """An engine of the model, which is awake meanwhile. Raises NotServed."""
        line = self._lines[name]
        began = time.monotonic()
        if line.standing.state is State.AWAKE:
            self._enter(line)
        else:
            await self._wait(line, began)
        self._observer.waited(name, time.monotonic() - began)
        engine = line.group.pick()
        engine.in_flight += 1
        try:
            yield engine
        finally:
            engine.in_flight -= 1
            self._leave(line)

    async def _wait(self, line: _Line, began: float) -> None:
        """When it returns, the request has entered."""
        self._refuse(line, began)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        limit = self.bound(line.standing.model.name)
        timer = loop.call_later(limit, self._expire, line, future, limit)
        line.waiting.append((began, future))
        self._look()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave(line)
            self._look()
            raise
        finally:
            timer.cancel()

    def _refuse(self, line: _Line, now: float) -> None:
        name = line.standing.model.name
        if line.never:
            raise NotServed(f"there is never room for model {name}", line.never)
        pause = line.standing.not_before - now
        if pause > 0:
            raise NotServed(
                f"model {name} has failed {line.failures} times, and is tried again in "
                f"{pause:.0f} s",
                line.last_error,
                retry_after=pause,
            )

    def _expire(self, line: _Line, future: asyncio.Future[None], limit: float) -> None:
        if not future.done():
            name = line.standing.model.name
            future.set_exception(
                NotServed(
                    f"model {name} did not wake within {limit:.0f} s: it is "
                    f"{line.standing.state.value}",
                    line.last_error,
                    retry_after=limit,
                )
            )
            self._look()

    def _enter(self, line: _Line) -> None:
        line.in_flight += 1
        line.standing.idle_since = None

    def _leave(self, line: _Line) -> None:
        line.in_flight -= 1
        if not line.in_flight:
            line.standing.idle_since = time.monotonic()
            self._look()

    def bound(self, name: str) -> float:
        """How long a request that comes now waits at most."""
        ended = {each for each, line in self._lines.items() if line.standing.state is State.ENDED}
        return decision.bound(name, self.config.models.values(), self.config.budgets, ended).worst

    def want(self, name: str) -> None:
        """Wakes a model without a request."""
        line = self._lines[name]
        if line.standing.state is not State.AWAKE and line.kept_since is None:
            line.kept_since = time.monotonic()
            self._look()

    def standing(self, name: str) -> Standing:
        return self._lines[name].standing

    def queued(self, name: str) -> int:
        return sum(not future.done() for _, future in self._lines[name].waiting)

    def in_flight(self, name: str) -> int:
        return self._lines[name].in_flight

    # ---- the loop ----

    def _look(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Until it is cancelled. Then engines are left as they are."""
        for name, line in self._lines.items():
            if await line.group.find():
                self._turn(name, State.ASLEEP)
        try:
            while True:
                self._changed.clear()
                again = self._carry_out()
                limit = None if again is None else max(again - time.monotonic(), 0)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), limit)
        finally:
            for task in self._moves:
                task.cancel()

    def _carry_out(self) -> float | None:
        for line in self._lines.values():
            line.note()
        standings = [line.standing for line in self._lines.values() if not line.never]
        found = decision.decide(time.monotonic(), standings, self.config.budgets)
        for name in found.wake:
            self._move(name, State.WAKING, self._wake(name))
        for name in found.sleep:
            self._move(name, State.SLEEPING, self._sleep(name))
        for name in found.end:
            self._move(name, State.SLEEPING, self._end(name))
        for name in found.drain:
            self._turn(name, State.DRAINING)
            self._look()
        self._tell(found)
        return found.again

    def _move(self, name: str, state: State, call: Coroutine[None, None, None]) -> None:
        self._turn(name, state)
        task = asyncio.get_running_loop().create_task(call)
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    def _turn(self, name: str, state: State) -> None:
        standing = self._lines[name].standing
        standing.state, standing.since = state, time.monotonic()

    def _tell(self, found: Decision) -> None:
        """Who makes room for whom, once."""
        pairs = {(name, waiting) for waiting, others in found.waits_for.items() for name in others}
        for name, waiting in pairs - self._in_the_way:
            log.info("%s makes room for %s", name, waiting)
            self._observer.made_room(name, waiting)
        self._in_the_way = pairs

    async def _wake(self, name: str) -> None:
        line, began = self._lines[name], time.monotonic()
        try:
            await line.group.wake()
            if not line.group.is_running:
                raise errors.Lost("an engine ended when it was awake", "its log says why")
        except Exception as error:
            self._fail(line, str(error))
            return
        seconds = time.monotonic() - began
        log.info("%s is awake after %.3f s", name, seconds)
        self._observer.moved(name, "wake", seconds)
        line.kept_since = None
        self._turn(name, State.AWAKE)
        if not line.in_flight:
            line.standing.idle_since = time.monotonic()
        while line.waiting:
            _, future = line.waiting.popleft()
            if not future.done():
                self._enter(line)
                future.set_result(None)
        self._look()

    async def _sleep(self, name: str) -> None:
        line, began = self._lines[name], time.monotonic()
        await line.group.sleep()
        seconds = time.monotonic() - began
        log.info("%s is asleep after %.3f s", name, seconds)
        self._observer.moved(name, "sleep", seconds)
        self._turn(name, State.ASLEEP if line.group.is_running else State.ENDED)
        if line.in_flight and line.group.is_running:
            line.kept_since = time.monotonic()
        self._look()

    async def _end(self, name: str) -> None:
        await self._lines[name].group.end()
        self._turn(name, State.ENDED)
        self._look()

    # ---- failures ----

    def lost(self, name: str) -> None:
        """An engine of the model has ended by itself, or listens no longer."""
        line = self._lines[name]
        was = line.standing.state
        if was in (State.WAKING, State.SLEEPING, State.ENDED):
            return  # whoever moves it finds out
        self._move(name, State.SLEEPING, self._recover(line, was))

    async def _recover(self, line: _Line, was: State) -> None:
        """All engines of the model end, and start again if it was in use."""
        name = line.standing.model.name
        await line.group.end()
        self._fail(line, f"an engine of {name} ended by itself")
        if was is not State.ASLEEP or line.standing.model.stays_awake:
            line.kept_since = time.monotonic()

    def _fail(self, line: _Line, why: str) -> None:
        name = line.standing.model.name
        now = time.monotonic()
        if now - line.failed_at > STEADY_S:
            line.failures = 0
        line.failed_at = now
        pause = PAUSES_S[min(line.failures, len(PAUSES_S) - 1)]
        line.failures += 1
        line.last_error = why
        log.error("%s failed, and is tried again in %g s: %s", name, pause, why)
        self._observer.failed(name)
        self._turn(name, State.ASLEEP if line.group.is_running else State.ENDED)
        line.standing.not_before = now + pause
        if line.failures > 1:
            while line.waiting:
                _, future = line.waiting.popleft()
                if not future.done():
                    future.set_exception(
                        NotServed(f"model {name} could not wake", why, retry_after=math.ceil(pause))
                    )
        self._look()
