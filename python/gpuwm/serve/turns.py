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
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Protocol

from .. import errors
from . import decision
from .decision import Decision, Standing, State
from .models import Config, Model
from .supervisor import Engine, Group, OnLost

log: logging.Logger = logging.getLogger("gpuwm.serve")

# Before a model that failed is tried again: at once, and then after twice as long each time.
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
# What a switch may meet, and not again soon after.
MAY_PASS = (
    *(errors.Unreachable, errors.TimedOut, errors.Busy, errors.Disconnected),
    *(errors.Draining, errors.Quota, errors.NoRoom),
)
SWITCH_AGAIN_S = 5.0
# Nobody could serve this version, so the engine goes on with the one that it has.
STAYS = (errors.NotFound, errors.Damaged, errors.Refused)
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


_Waiting = collections.deque[tuple[float, "asyncio.Future[_Line]"]]


class _Line:
    """A model, and the requests that wait for it.

    - name: as requests have it. The standing has another one if the line is leaving.
    - kept_since: when requests that the engines have kept, or nobody's request, began to wait.
    """

    def __init__(self, group: Group) -> None:
        self.name = group.model.name
        self.group = group
        self.standing = Standing(group.model)
        self.waiting: _Waiting = collections.deque()
        self.kept_since: float | None = None
        self.in_flight = 0
        self.failures, self.failed_at = 0, -math.inf
        self.never = ""  # why it can't ever wake
        self.last_error = ""

    def join(self, waiting: _Waiting) -> None:
        """Those wait here from now on."""
        self.waiting = collections.deque(
            sorted([*self.waiting, *waiting], key=lambda each: each[0])
        )
        waiting.clear()

    def note(self) -> None:
        """Brings the standing up to date with who waits."""
        while self.waiting and self.waiting[0][1].done():
            self.waiting.popleft()
        times = [self.kept_since] if self.kept_since is not None else []
        times += [self.waiting[0][0]] if self.waiting else []
        self.standing.waiting_since = min(times, default=None)


class Turns:
    """group: makes the engines of a model. `run` has to run as long as it is in use."""

    def __init__(
        self, config: Config, group: Callable[[Model, OnLost], Group], observer: Observer
    ) -> None:
        self._make = group
        self._lines: dict[str, _Line] = {}  # by the names that requests have
        self._leaving: list[_Line] = []
        self._retired = itertools.count(1)
        self._observer = observer
        self._changed = asyncio.Event()
        self._moves: set[asyncio.Task[None]] = set()
        self._in_the_way: set[tuple[str, str]] = set()
        self._pinned: dict[str, str] = {}  # ids of versions, by the names of models
        self.config: Config = config
        self.reload(config)

    # ---- which models there are ----

    def reload(self, config: Config) -> None:
        """From now on these are the models. What is about times and memory counts at once.

        If engines would be started otherwise than those that run, new ones take their place: they
        get the requests that wait, and all that come. Those that ran are leaving, as the engines of
        models that are gone: they sleep and wake in turn with all others until their last request
        has ended, and end then."""
        self.config = config
        there, self._lines = self._all(), {}
        for given in config.models.values():
            model = dataclasses.replace(given, pinned=self._pinned.get(given.name, ""))
            line = next((each for each in there if each.group.can_serve(model)), None)
            if line is None:
                line = _Line(self._make(model, self.lost))
            else:
                there.remove(line)
            self._take(line, model)
            self.moved(model.version, config.ids.get(model.version, ""))
        for line in there:
            self._retire(line)
        self._leaving = there
        never = decision.never_fits(config.models.values(), config.budgets)
        for name, line in self._lines.items():
            line.never = never.get(name, "")
        self._look()

    def _take(self, line: _Line, model: Model) -> None:
        line.standing.model = model
        line.group.change(model)
        self._lines[model.name] = line
        if model.at_start or model.stays_awake:
            self.want(model.name)

    def _retire(self, line: _Line) -> None:
        """It sleeps and ends as soon as it has no requests. No model has its name."""
        if line.name == line.standing.model.name:
            log.info("%s is leaving, with %d requests", line.name, line.in_flight)
            line.standing.model = dataclasses.replace(
                line.standing.model,
                name=f"{line.name}#{next(self._retired)}",
                idle=0.0,
                end=0.0,
                stays_awake=False,
            )
        if not line.in_flight:
            line.kept_since = None
        if line.name in self._lines:
            self._lines[line.name].join(line.waiting)

    def _all(self) -> list[_Line]:
        return [*self._lines.values(), *self._leaving]

    async def end(self) -> None:
        """Ends all engines."""
        await asyncio.gather(*(line.group.end() for line in self._all()))

    # ---- a request ----

    @contextlib.asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[Engine]:
        """An engine of the model, which is awake meanwhile. Raises NotServed."""
        line = self._lines[name]
        began = time.monotonic()
        if line.standing.state is State.AWAKE:
            self._enter(line)
        else:
            line = await self._wait(line, began)
        self._observer.waited(name, time.monotonic() - began)
        engine = line.group.pick()
        engine.in_flight += 1
        try:
            yield engine
        finally:
            engine.in_flight -= 1
            self._leave(line)

    async def _wait(self, line: _Line, began: float) -> _Line:
        """Returns the line which the request has entered: of the same model."""
        self._refuse(line, began)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Line] = loop.create_future()
        limit = self.bound(line.name)
        timer = loop.call_later(limit, self._expire, line, future, limit)
        line.waiting.append((began, future))
        self._look()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._leave(future.result())
            self._look()
            raise
        finally:
            timer.cancel()

    def _refuse(self, line: _Line, now: float) -> None:
        if line.never:
            raise NotServed(f"there is never room for model {line.name}", line.never)
        pause = line.standing.not_before - now
        if pause > 0:
            raise NotServed(
                f"model {line.name} has failed {line.failures} times, and is tried again in "
                f"{pause:.0f} s",
                line.last_error,
                retry_after=pause,
            )

    def _expire(self, line: _Line, future: asyncio.Future[_Line], limit: float) -> None:
        if not future.done():
            future.set_exception(
                NotServed(
                    f"model {line.name} did not wake within {limit:.0f} s: it is "
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
        standings = [line.standing for line in self._all()]
        ended = {each.model.name for each in standings if each.state is State.ENDED}
        models = [each.model for each in standings]
        return decision.bound(name, models, self.config.budgets, ended).worst

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
        for line in self._all():
            if await line.group.find():
                self._turn(line, State.ASLEEP)
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
        self._leaving = [line for line in self._leaving if not _is_gone(line)]
        for line in self._all():
            line.note()
        lines = {line.standing.model.name: line for line in self._all() if not line.never}
        standings = [line.standing for line in lines.values()]
        found = decision.decide(time.monotonic(), standings, self.config.budgets)
        for line in (lines[name] for name in found.wake):
            self._move(line, State.WAKING, self._wake(line))
        for line in (lines[name] for name in found.sleep):
            self._move(line, State.SLEEPING, self._sleep(line))
        for line in (lines[name] for name in found.end):
            self._move(line, State.SLEEPING, self._end(line))
        for line in (lines[name] for name in found.drain):
            self._turn(line, State.DRAINING)
            self._look()
        self._tell(found)
        return found.again

    def _move(self, line: _Line, state: State, call: Coroutine[None, None, None]) -> None:
        self._turn(line, state)
        self._start(call)

    def _start(self, call: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    def _turn(self, line: _Line, state: State) -> None:
        line.standing.state, line.standing.since = state, time.monotonic()

    def _tell(self, found: Decision) -> None:
        """Who makes room for whom, once."""
        pairs = {(name, waiting) for waiting, others in found.waits_for.items() for name in others}
        for name, waiting in pairs - self._in_the_way:
            log.info("%s makes room for %s", name, waiting)
            self._observer.made_room(name, waiting)
        self._in_the_way = pairs

    async def _wake(self, line: _Line) -> None:
        began = time.monotonic()
        try:
            await line.group.wake()
            if not line.group.is_running:
                raise errors.Lost("an engine ended when it was awake", "its log says why")
        except Exception as error:
            self._fail(line, str(error))
            return
        if line.group.is_behind and line.group.model.parks:
            await self._switch(line)
        seconds = time.monotonic() - began
        log.info("%s is awake after %.3f s", line.standing.model.name, seconds)
        self._observer.moved(line.name, "wake", seconds)
        line.kept_since = None
        self._turn(line, State.AWAKE)
        if not line.in_flight:
            line.standing.idle_since = time.monotonic()
        while line.waiting:
            _, future = line.waiting.popleft()
            if not future.done():
                self._enter(line)
                future.set_result(line)
        self._look()

    async def _sleep(self, line: _Line) -> None:
        began = time.monotonic()
        await line.group.sleep()
        seconds = time.monotonic() - began
        log.info("%s is asleep after %.3f s", line.standing.model.name, seconds)
        self._observer.moved(line.name, "sleep", seconds)
        self._turn(line, State.ASLEEP if line.group.is_running else State.ENDED)
        if line.in_flight and line.group.is_running:
            line.kept_since = time.monotonic()
        self._look()

    async def _end(self, line: _Line) -> None:
        await line.group.end()
        self._turn(line, State.ENDED)
        self._look()

    # ---- versions ----

    def versions(self) -> set[str]:
        """Those of gpuwmd that models name."""
        return {line.group.model.version for line in self._lines.values()} - {""}

    def moved(self, ref: str, version: str) -> None:
        """The name stands for the version with this id now. Engines that are awake go there, and
        others when they wake."""
        for line in self._lines.values():
            if not version or line.group.model.version != ref or line.group.wanted == version:
                continue
            line.group.wanted = version
            if line.standing.state in (State.AWAKE, State.DRAINING):
                self._begin_switch(line)

    def _begin_switch(self, line: _Line) -> None:
        if line.group.is_behind and line.standing.state in (State.AWAKE, State.DRAINING):
            self._start(self._switch(line))

    async def _switch(self, line: _Line) -> None:
        """Requests go on meanwhile. Where only other engines could, these take their place."""
        group = line.group
        try:
            await group.switch()
        except MAY_PASS as error:
            log.warning("%s switches later: %s", line.name, error)
            asyncio.get_running_loop().call_later(SWITCH_AGAIN_S, self._begin_switch, line)
        except (errors.Mismatch, errors.Unsupported, errors.NoDevice) as error:
            log.warning("%s needs new engines for %s: %s", line.name, group.model.version, error)
            if line in self._lines.values():
                self._pinned[line.name] = group.wanted
                self.reload(self.config)
        except STAYS as error:
            log.error("%s keeps its version: %s", line.name, error)
        except errors.Error as error:
            log.error("%s could not switch, and its engines end: %s", line.name, error)
            self.lost(group)

    # ---- failures ----

    def lost(self, group: Group) -> None:
        """An engine of the group has ended by itself, or listens no longer."""
        line = next((each for each in self._all() if each.group is group), None)
        if line is None or line.standing.state in (State.WAKING, State.SLEEPING, State.ENDED):
            return  # whoever moves it finds out
        self._move(line, State.SLEEPING, self._recover(line, line.standing.state))

    async def _recover(self, line: _Line, was: State) -> None:
        """All engines of the model end, and start again if it was in use."""
        await line.group.end()
        self._fail(line, f"an engine of {line.name} ended by itself")
        if was is not State.ASLEEP or line.standing.model.stays_awake:
            line.kept_since = time.monotonic()
        if line in self._leaving:
            line.kept_since = None

    def _fail(self, line: _Line, why: str) -> None:
        now = time.monotonic()
        if now - line.failed_at > STEADY_S:
            line.failures = 0
        line.failed_at = now
        pause = PAUSES_S[min(line.failures, len(PAUSES_S) - 1)]
        line.failures += 1
        line.last_error = why
        log.error("%s failed, and is tried again in %g s: %s", line.name, pause, why)
        self._observer.failed(line.name)
        self._turn(line, State.ASLEEP if line.group.is_running else State.ENDED)
        line.standing.not_before = now + pause
        if line.failures > 1:
            while line.waiting:
                _, future = line.waiting.popleft()
                if not future.done():
                    error = NotServed(f"model {line.name} could not wake", why, math.ceil(pause))
                    future.set_exception(error)
        self._look()


def _is_gone(line: _Line) -> bool:
    """Whether a line that is leaving has left."""
    return line.standing.state is State.ENDED and not any(not f.done() for _, f in line.waiting)
