"""Who sleeps and who wakes: functions of what they are given. They ask no clock and do nothing.

`decide` is called when something has changed: a request waits, a model fell asleep, a time ran
out. The rules:

- Models that are waited for get their turn in the order in which somebody began to wait. The first
  has its memory reserved. Others go past it only into memory that it does not need.
- If there is no room, models that are awake make some: those without requests first, and of these
  the one that was idle for longest. A busy one gets `drain` seconds. Nobody sleeps before it was
  awake for `min_awake`.
- So a model whose turn it is wakes after min_awake + drain + sleep + wake at most, and a model
  that waits after one such turn for each model that shares a device with it (`bound`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterable, Mapping, Sequence

from .models import Model


class State(enum.Enum):
    """Of a model. ENDED: it has no process. DRAINING: it gets no new requests."""

    ENDED = "ended"
    ASLEEP = "asleep"
    WAKING = "waking"
    AWAKE = "awake"
    DRAINING = "draining"
    SLEEPING = "falling asleep"


@dataclasses.dataclass(eq=False)
class Standing:
    """How a model stands. Times are those of one clock, in seconds.

    - since: when the state began.
    - idle_since: since when it has no request in flight; None: it has some.
    - waiting_since: when the request came that waits for longest; None: none waits.
    - not_before: it failed, and is left alone until then.
    """

    model: Model
    state: State = State.ENDED
    since: float = 0.0
    idle_since: float | None = 0.0
    waiting_since: float | None = None
    not_before: float = 0.0


@dataclasses.dataclass(frozen=True)
class Decision:
    """What to do now, by the names of models.

    - wake: it has room now.
    - drain: it gets no new requests from now on.
    - sleep: it has no requests any more, or had its time.
    - end: it has slept for long enough.
    - again: when to decide again, though nothing has happened. None: not before.
    - waits_for: who makes room for whom.
    """

    wake: Sequence[str] = ()
    drain: Sequence[str] = ()
    sleep: Sequence[str] = ()
    end: Sequence[str] = ()
    again: float | None = None
    waits_for: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


Bytes = Mapping[str, int]  # by device


# ---- memory --------------------------------------------------------------------------------------


def never_fits(models: Iterable[Model], budgets: Mapping[str, int]) -> dict[str, str]:
    """Why a model can't ever wake, by its name: its memory, that of the models that stay awake,
    and what all others keep while they sleep, are more than a device has."""
    models, found = list(models), {}
    for model in models:
        for device, need in model.awake_bytes.items():
            others = [each for each in models if each is not model and device in each.devices]
            staying = sum(each.awake_bytes[device] for each in others if each.stays_awake)
            asleep = sum(each.asleep_bytes[device] for each in others if not each.stays_awake)
            if need + staying + asleep > budgets[device]:
                found[model.name] = (
                    f"it takes {_gib(need)} GiB of device {device}, which has "
                    f"{_gib(budgets[device])} GiB; models that stay awake have {_gib(staying)} GiB "
                    f"of it, and others keep {_gib(asleep)} GiB while they sleep"
                )
    return found


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f}"


class _Room:
    """What is left of the devices.

    - now: what a model that wakes at this moment may take.
    - later: what is left when all models sleep that are on the way to, and all wake whose turn
      came before. It is negative while these lack room.
    """

    def __init__(self, standings: Iterable[Standing], budgets: Mapping[str, int]) -> None:
        self.now, self.later = dict(budgets), dict(budgets)
        for each in standings:
            if each.state is State.ENDED:
                continue
            asleep, awake = each.model.asleep_bytes, each.model.awake_bytes
            for device in each.model.devices:
                takes = (asleep if each.state is State.ASLEEP else awake)[device]
                leaves = each.state in (State.DRAINING, State.SLEEPING)
                self.now[device] -= takes
                self.later[device] -= asleep[device] if leaves else takes

    def has(self, need: Bytes) -> bool:
        return all(size <= min(self.now[at], self.later[at]) for at, size in need.items())

    def give(self, need: Bytes) -> None:
        for device, size in need.items():
            self.now[device] -= size
            self.later[device] -= size

    def reserve(self, need: Bytes) -> None:
        for device, size in need.items():
            self.later[device] -= size

    def lack(self, need: Bytes) -> Bytes:
        """What somebody has to give up before there is room for it, later."""
        found = {device: size - self.later[device] for device, size in need.items()}
        return {device: size for device, size in found.items() if size > 0}

    def comes(self, freed: Bytes) -> None:
        """A model begins to make room."""
        for device, size in freed.items():
            self.later[device] += size


def _needed(standing: Standing) -> Bytes:
    """What a model takes when it wakes, besides what it has."""
    if standing.state is State.ENDED:
        return standing.model.awake_bytes
    return standing.model.freed_bytes


# ---- the decision --------------------------------------------------------------------------------


def decide(now: float, standings: Sequence[Standing], budgets: Mapping[str, int]) -> Decision:
    """What to do now. budgets: what all models may take of each device together."""
    room = _Room(standings, budgets)
    wake: list[str] = []
    leaving: list[Standing] = []
    times: list[float] = []
    waits_for: dict[str, Sequence[str]] = {}
    for waiting in sorted(filter(_is_waiting, standings), key=_turn):
        if waiting.not_before > now:
            times.append(waiting.not_before)
            continue
        need = _needed(waiting)
        if room.has(need):
            room.give(need)
            wake.append(waiting.model.name)
            continue
        chosen = _who_leaves(now, room.lack(need), standings, leaving)
        room.reserve(need)
        for each in chosen:
            room.comes(each.model.freed_bytes)
            leaving.append(each)
        waits_for[waiting.model.name] = [
            each.model.name for each in standings if _stands_in_the_way(each, waiting, chosen)
        ]
    drain, sleep = [], []
    for each in leaving:
        may_leave = each.since + each.model.min_awake
        if may_leave > now:
            times.append(may_leave)
        elif each.idle_since is None:
            drain.append(each.model.name)
        else:
            sleep.append(each.model.name)
    end: list[str] = []
    for each in standings:
        if each in leaving or each.waiting_since is not None:
            continue
        _by_time(now, each, sleep, end, times)
    for each in standings:
        if each.state is State.DRAINING:
            over = each.since + each.model.drain
            if each.idle_since is not None or over <= now:
                sleep.append(each.model.name)
            else:
                times.append(over)
    return Decision(wake, drain, sleep, end, min(times, default=None), waits_for)


def _is_waiting(standing: Standing) -> bool:
    asleep = standing.state in (State.ENDED, State.ASLEEP)
    return asleep and standing.waiting_since is not None


def _turn(standing: Standing) -> tuple[float, str]:
    assert standing.waiting_since is not None
    return standing.waiting_since - standing.model.priority, standing.model.name


def _stands_in_the_way(each: Standing, waiting: Standing, chosen: Sequence[Standing]) -> bool:
    leaves = each in chosen or each.state in (State.DRAINING, State.SLEEPING)
    return leaves and not set(each.model.devices).isdisjoint(waiting.model.devices)


def _who_leaves(
    now: float, lack: Bytes, standings: Iterable[Standing], leaving: Sequence[Standing]
) -> list[Standing]:
    """Which models that are awake give up at least so much, in the order in which they should.
    Some of them may have to stay awake for a while yet. All that may, if they are too few."""

    def order(each: Standing) -> tuple[bool, bool, float]:
        is_early = each.since + each.model.min_awake > now
        is_busy = each.idle_since is None
        return is_early, is_busy, each.since if each.idle_since is None else each.idle_since

    left, chosen = dict(lack), []
    for each in sorted((each for each in standings if _may_leave(each)), key=order):
        freed = each.model.freed_bytes
        helps = any(freed.get(at, 0) > 0 for at, size in left.items() if size > 0)
        if helps and each not in leaving:
            chosen.append(each)
            left = {at: size - freed.get(at, 0) for at, size in left.items()}
    for each in list(chosen):  # whom those after it have made needless
        freed = each.model.freed_bytes
        without = {at: size + freed.get(at, 0) for at, size in left.items()}
        if all(size <= 0 for size in without.values()):
            chosen.remove(each)
            left = without
    return chosen


def _may_leave(standing: Standing) -> bool:
    return standing.state is State.AWAKE and not standing.model.stays_awake


def _by_time(
    now: float, standing: Standing, sleep: list[str], end: list[str], times: list[float]
) -> None:
    """A model that nobody used for long sleeps, and ends later."""
    model = standing.model
    if standing.idle_since is None or model.stays_awake:
        return
    for state, limit, found in ((State.AWAKE, model.idle, sleep), (State.ASLEEP, model.end, end)):
        if standing.state is state and limit is not None:
            over = standing.idle_since + limit
            if state is State.AWAKE:
                over = max(over, standing.since + model.min_awake)
            if over <= now:
                found.append(model.name)
            else:
                times.append(over)


# ---- how long a request waits --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bound:
    """How long a request of a model may wait, in seconds, if no engine fails.

    - alone: while no other model is waited for.
    - worst: while all others are waited for at once.
    """

    alone: float
    worst: float


def bound(
    name: str, models: Iterable[Model], budgets: Mapping[str, int], ended: Collection[str] = ()
) -> Bound:
    """Models that fit all at once never wait for each other. ended: those without a process."""
    sharing = _sharing(name, list(models))
    (model,) = (each for each in sharing if each.name == name)

    def wake(each: Model) -> float:
        return max(each.wake, each.start) if each.name in ended else each.longest_wake

    if _fit_at_once(sharing, budgets):
        own = wake(model) + (model.sleep if model.idle is not None else 0)
        return Bound(own, own)
    sleep = max(each.sleep for each in sharing)
    room = max(each.min_awake for each in sharing) + max(each.drain for each in sharing) + sleep
    ahead = max(max(each.priority for each in sharing) - model.priority, 0.0)
    turns = sum(room + wake(each) for each in sharing)
    # It may be on the way to sleep when somebody begins to wait for it.
    return Bound(model.sleep + room + wake(model), model.drain + model.sleep + turns + ahead)


def _sharing(name: str, models: list[Model]) -> list[Model]:
    """The model, and those that share a device with it, or with one of these."""
    devices = {device for each in models if each.name == name for device in each.devices}
    while True:
        found = [each for each in models if not devices.isdisjoint(each.devices)]
        more = devices.union(*(each.devices for each in found))
        if more == devices:
            return found
        devices = more


def _fit_at_once(models: Iterable[Model], budgets: Mapping[str, int]) -> bool:
    left = dict(budgets)
    for model in models:
        for device, size in model.awake_bytes.items():
            left[device] -= size
    return min(left.values()) >= 0
