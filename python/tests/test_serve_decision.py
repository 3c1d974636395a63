"""Who sleeps and who wakes. The simulator counts a million requests."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
from serve_simulator import Simulation

from gpuwm.serve.decision import Standing, State, bound, decide, never_fits
from gpuwm.serve.models import GIB, Model

SEED = 46
REQUESTS = 1_000_000
BUDGETS = {"0": 100 * GIB}


def model(name: str, memory: float = 40, **more: Any) -> Model:
    made = Model(name, memory=int(memory * GIB), asleep=GIB, min_awake=5, drain=30, sleep=2, wake=4)
    return dataclasses.replace(made, **more)


def awake(name: str, since: float = 0, idle: float | None = None, **more: Any) -> Standing:
    return Standing(model(name, **more), State.AWAKE, since, idle)


def asleep(name: str, waiting: float | None = None, **more: Any) -> Standing:
    return Standing(model(name, **more), State.ASLEEP, waiting_since=waiting)


# ---- one decision --------------------------------------------------------------------------------


def test_who_has_room_wakes_at_once() -> None:
    found = decide(100, [awake("a"), asleep("b", 99), asleep("c")], BUDGETS)
    assert (found.wake, found.drain, found.sleep, found.again) == (["b"], [], [], None)


def test_who_was_idle_for_longest_sleeps_and_the_wanted_one_waits_for_it() -> None:
    found = decide(100, [awake("a", idle=80), awake("b", idle=70), asleep("c", 99)], BUDGETS)
    assert (found.wake, found.drain, found.sleep) == ([], [], ["b"])
    assert found.waits_for == {"c": ["b"]}


def test_idle_before_busy_and_the_busy_one_drains() -> None:
    found = decide(100, [awake("a"), awake("b", idle=99), asleep("c", 99)], BUDGETS)
    assert (found.drain, found.sleep) == ([], ["b"])
    found = decide(100, [awake("a"), awake("b", 1), asleep("c", 99)], BUDGETS)
    assert (found.drain, found.sleep) == (["a"], [])


def test_nobody_sleeps_who_has_just_woken() -> None:
    found = decide(100, [awake("a", 98), awake("b", 97, idle=99), asleep("c", 99)], BUDGETS)
    assert (found.wake, found.drain, found.sleep, found.again) == ([], [], [], 102)


def test_a_draining_one_sleeps_without_requests_or_when_its_time_is_over() -> None:
    busy, free = awake("a", 80), awake("b", 95, idle=99)
    busy.state = free.state = State.DRAINING
    found = decide(100, [busy, free], BUDGETS)
    assert (found.sleep, found.again) == (["b"], 110)
    assert decide(110, [busy], BUDGETS).sleep == ["a"]


def test_no_more_sleep_than_have_to() -> None:
    """What sleeps on its way counts, and a large one makes smaller ones needless."""
    going = awake("a", idle=1)
    going.state = State.SLEEPING
    found = decide(100, [going, awake("b", idle=2), asleep("c", 99)], BUDGETS)
    assert (found.drain, found.sleep) == ([], [])
    small, large = awake("a", idle=1, memory=10), awake("b", idle=2, memory=80)
    found = decide(100, [small, large, asleep("c", 99, memory=80)], BUDGETS)
    assert found.sleep == ["b"]


def test_the_first_in_the_line_is_not_passed_by_others() -> None:
    """A small one takes no memory that the first one needs, and what that does not need."""
    others = [awake("a", 98), asleep("first", 90, memory=90)]
    assert decide(100, [*others, asleep("b", 91, memory=50)], BUDGETS).wake == []
    assert decide(100, [*others, asleep("b", 91, memory=9)], BUDGETS).wake == ["b"]


def test_devices_are_counted_each() -> None:
    budgets = {"0": 50 * GIB, "1": 50 * GIB}
    here, there = awake("a", idle=1), awake("b", idle=2, devices=("1",))
    found = decide(100, [here, there, asleep("c", 99, devices=("1",))], budgets)
    assert found.sleep == ["b"]
    found = decide(100, [here, there, asleep("c", 99, devices=("0", "1"))], budgets)
    assert found.sleep == ["a", "b"]


def test_what_stays_awake_never_makes_room() -> None:
    staying, other = awake("a", idle=1, stays_awake=True), awake("b", idle=50)
    assert decide(100, [staying, other, asleep("c", 99)], BUDGETS).sleep == ["b"]


def test_priority_is_a_head_start() -> None:
    room = [awake("a", 98), awake("d", 98, memory=10)]
    found = decide(100, [*room, asleep("b", 90), asleep("c", 95, priority=10.0)], BUDGETS)
    assert found.wake == ["c"]


def test_who_failed_is_left_alone_for_a_while() -> None:
    failed = asleep("a", 99)
    failed.not_before = 105
    found = decide(100, [failed, asleep("b", 99.5)], BUDGETS)
    assert (found.wake, found.again) == (["b"], 105)


def test_who_is_not_used_sleeps_and_ends() -> None:
    first = awake("a", idle=40)
    first.model = dataclasses.replace(first.model, idle=50.0, end=90.0)
    assert decide(80, [first], BUDGETS).again == 90
    assert decide(90, [first], BUDGETS).sleep == ["a"]
    first.state = State.ASLEEP
    assert decide(100, [first], BUDGETS).again == 130
    assert decide(130, [first], BUDGETS).end == ["a"]


def test_what_can_t_ever_fit_is_found() -> None:
    models = [model("a", stays_awake=True), model("b", 59), model("c", 60)]
    found = never_fits(models, BUDGETS)
    assert list(found) == ["c"]
    assert found["c"] == (
        "it takes 60.00 GiB of device 0, which has 100.00 GiB; models that stay awake have "
        "40.00 GiB of it, and others keep 1.00 GiB while they sleep"
    )


# ---- bounds --------------------------------------------------------------------------------------


def test_bounds_are_sums_of_the_times() -> None:
    a, b, far = model("a", 60), model("b", 60), model("far", 60, devices=("1",))
    budgets = {**BUDGETS, "1": 100 * GIB}
    found = bound("a", [a, b, far], budgets)
    assert found.alone == 2 + (5 + 30 + 2) + 4
    assert found.worst == 30 + 2 + 2 * (5 + 30 + 2 + 4)
    assert bound("far", [a, b, far], budgets).worst == 4
    assert bound("far", [dataclasses.replace(far, parks=False)], budgets).worst == far.start
    assert bound("a", [a, dataclasses.replace(b, priority=7)], budgets).worst == found.worst + 7


def service(chance: random.Random) -> float:
    """Most requests take a moment, and one of a thousand longer than anybody drains."""
    return chance.expovariate(2) if chance.random() < 0.999 else 60


def arrivals(
    names: list[str], count: int, rate: float, chance: random.Random
) -> list[tuple[float, str]]:
    """Some models are asked for often, and others now and then."""
    weights = [1 / (number + 1) ** 2 for number in range(len(names))]
    when, found = 0.0, []
    for name in chance.choices(names, weights, k=count):
        when += chance.expovariate(rate)
        found.append((when, name))
    return found


def check(simulation: Simulation, budgets: dict[str, int]) -> None:
    models = [each.model for each in simulation.standings]
    for each in simulation.models.values():
        limit = bound(each.standing.model.name, models, budgets).worst
        assert each.longest <= limit + 1e-6, (each.standing.model, limit)


def test_a_million_requests_wait_no_longer_than_their_bound() -> None:
    """Ten models in a budget for three."""
    names = [f"m{number}" for number in range(10)]
    budgets = {"0": 3 * 40 * GIB + 7 * GIB}
    simulation = Simulation([model(name) for name in names], budgets, SEED, service)
    simulation.run(arrivals(names, REQUESTS, 100, random.Random(SEED)))
    served = [each.served for each in simulation.models.values()]
    assert sum(served) == REQUESTS
    assert min(served) > 0
    assert simulation.decisions > 10_000
    check(simulation, budgets)


@pytest.mark.parametrize("seed", range(200))
def test_any_models_wait_no_longer_than_their_bound(seed: int) -> None:
    """Some devices, memory, times, priorities and rates of requests."""
    chance = random.Random(seed)
    budgets = {str(number): 100 * GIB for number in range(chance.randint(1, 3))}
    models = [
        Model(
            f"m{number}",
            devices=tuple(chance.sample(sorted(budgets), chance.randint(1, len(budgets)))),
            memory=int(chance.uniform(5, 80) * GIB),
            asleep=chance.choice((0, GIB // 2)),
            parks=chance.random() < 0.8,
            min_awake=chance.choice((0.5, 1, 5)),
            drain=chance.choice((0, 2, 20)),
            sleep=chance.uniform(0, 3),
            wake=chance.uniform(0.01, 5),
            start=chance.uniform(0.01, 20),
            idle=chance.choice((None, 1, 30)),
            end=chance.choice((None, 60)),
            priority=chance.choice((0, 0, 3, 10)),
        )
        for number in range(chance.randint(1, 8))
    ]
    simulation = Simulation(models, budgets, seed, service, share=chance.choice((0, 0.5, 1)))
    names = [each.name for each in models]
    simulation.run(arrivals(names, 500, math.exp(chance.uniform(-2, 3)), chance))
    check(simulation, budgets)


def test_who_waits_alone_waits_no_longer_than_its_turn() -> None:
    """Requests come so far apart that no two models are waited for at once."""
    names = [f"m{number}" for number in range(10)]
    budgets = {"0": 3 * 40 * GIB + 7 * GIB}
    simulation = Simulation([model(name) for name in names], budgets, SEED, lambda chance: 50.0)
    chance = random.Random(SEED)
    simulation.run([(number * 100.0, chance.choice(names)) for number in range(2000)])
    alone = bound("m0", [each.model for each in simulation.standings], budgets).alone
    assert 4 < max(each.longest for each in simulation.models.values()) <= alone
