"""Requests, models and times without processes: `gpuwm.serve.decision` decides, and each request
notes how long it waited. Everything is random, by a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence

from gpuwm.serve import decision
from gpuwm.serve.decision import Standing, State
from gpuwm.serve.models import Model


class Simulated:
    """A model: `standing`, when the requests came that wait, and how many are in flight."""

    def __init__(self, model: Model) -> None:
        self.standing = Standing(model, State.ASLEEP if model.parks else State.ENDED)
        self.waiting: list[float] = []
        self.in_flight = 0
        self.kept = 0  # of them: they ended while the model slept, and have to go on
        self.served = 0
        self.longest = 0.0


class Simulation:
    """service: draws how long a request takes. share: of its limit that a wake or a sleep takes at
    least."""

    def __init__(
        self,
        models: Sequence[Model],
        budgets: Mapping[str, int],
        seed: int,
        service: Callable[[random.Random], float],
        share: float = 0.1,
    ) -> None:
        self.random = random.Random(seed)
        self.budgets = budgets
        self.models = {model.name: Simulated(model) for model in models}
        self.standings = [each.standing for each in self.models.values()]
        self.now = 0.0
        self.decisions = 0
        self._service, self._share = service, share
        self._events: list[tuple[float, int, Callable[[Simulated], None], Simulated]] = []
        self._number = 0
        self._look_at: float | None = None

    def run(self, arrivals: Sequence[tuple[float, str]]) -> None:
        """Until all are served. arrivals: in order."""
        for when, name in arrivals:
            while self._events and self._events[0][0] <= when:
                self._step()
            self.now = when
            self._arrive(self.models[name])
        while self._events:
            self._step()
        assert not any(each.waiting or each.in_flight for each in self.models.values())

    def _step(self) -> None:
        self.now, _, what, simulated = heapq.heappop(self._events)
        what(simulated)

    def _later(
        self, seconds: float, what: Callable[[Simulated], None], simulated: Simulated
    ) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + seconds, self._number, what, simulated))

    # ---- what happens ----

    def _arrive(self, model: Simulated) -> None:
        if model.standing.state is State.AWAKE:
            self._serve(model, self.now)
            return
        model.waiting.append(self.now)
        if model.standing.waiting_since is None:
            model.standing.waiting_since = self.now
            self._decide()

    def _serve(self, model: Simulated, came: float) -> None:
        model.longest = max(model.longest, self.now - came)
        model.served += 1
        model.in_flight += 1
        model.standing.idle_since = None
        self._later(self._service(self.random), self._served, model)

    def _served(self, model: Simulated) -> None:
        if model.standing.state not in (State.AWAKE, State.DRAINING):
            model.kept += 1
            return
        model.in_flight -= 1
        if not model.in_flight:
            model.standing.idle_since = self.now
            self._decide()

    def _woke(self, model: Simulated) -> None:
        standing = model.standing
        standing.state, standing.since = State.AWAKE, self.now
        standing.waiting_since = None
        for _ in range(model.kept):
            self._later(self._service(self.random), self._served, model)
        model.kept = 0
        for came in model.waiting:
            self._serve(model, came)
        model.waiting.clear()
        self._decide()

    def _slept(self, model: Simulated) -> None:
        standing = model.standing
        standing.state = State.ASLEEP if standing.model.parks else State.ENDED
        standing.since = self.now
        if model.in_flight and standing.waiting_since is None:
            standing.waiting_since = self.now
        self._decide()

    def _look(self, _: Simulated) -> None:
        if self._look_at is not None and self._look_at <= self.now:
            self._look_at = None
            self._decide()

    # ---- the decision ----

    def _decide(self) -> None:
        self.decisions += 1
        found = decision.decide(self.now, self.standings, self.budgets)
        for name in found.wake:
            was, limits = self.models[name].standing.state, self.models[name].standing.model
            model = self._turn(name, State.WAKING)
            most = limits.wake if was is State.ASLEEP else limits.start
            self._later(self._takes(most), self._woke, model)
        for name in found.sleep:
            model = self._turn(name, State.SLEEPING)
            self._later(self._takes(model.standing.model.sleep), self._slept, model)
        for name in found.drain:
            self._turn(name, State.DRAINING)
        for name in found.end:
            self._turn(name, State.ENDED)
        self._check()
        if found.drain:
            self._decide()
        elif found.again is not None and (self._look_at is None or found.again < self._look_at):
            self._look_at = found.again
            self._later(found.again - self.now, self._look, next(iter(self.models.values())))

    def _turn(self, name: str, state: State) -> Simulated:
        found = self.models[name]
        found.standing.state, found.standing.since = state, self.now
        return found

    def _takes(self, most: float) -> float:
        return most * self.random.uniform(self._share, 1.0)

    def _check(self) -> None:
        """No device has more than it can hold."""
        used = dict.fromkeys(self.budgets, 0)
        for each in self.standings:
            if each.state is State.ENDED:
                continue
            model = each.model
            takes = model.asleep_bytes if each.state is State.ASLEEP else model.awake_bytes
            for device, size in takes.items():
                used[device] += size
        assert all(size <= self.budgets[device] for device, size in used.items())
