"""The parts `park` and `park-small`: two engines take turns on one GPU by vLLM's sleep mode, first
with vLLM's own load, then with weights that are parked. gpuwmd's budget has room for one engine
that is awake at first, and then for the other's version besides."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import asking
import processes
from parts import COMPILED, auto
from processes import Engine
from report import differing
from running import START_S, Run
from service import Service

COMPARED_EVERY = 5  # turns, after which all batches are compared: they take a second
# Of the GPU for one engine with its version; the other one sleeps. Its version fits beside that.
UTILIZATION = 0.7
LEVEL = 1
# gpuwmd's budgets of a GPU. It keeps an eighth for operators; users have what one engine takes with
# its KV cache and a context of a loader, and that with the other version.
USERS = 7 / 8
TIGHT, WIDE = UTILIZATION / USERS + 0.002, 0.95
PROMPT = [[1, 64]]
GIB = 1 << 30
WAYS = ("vLLM", "tight", "wide")
# What one engine of 16 GiB is to reach, in seconds, on an H200.
GOALS = {
    ("sleep, first", "tight"): 0.35,
    ("sleep, later", "tight"): 0.05,
    ("wake, weights still there", "tight"): 0.075,
    ("wake, weights from host", "tight"): 0.40,
    ("to the other's first token", "tight"): 0.45,
    ("to the other's first token", "wide"): 0.10,
}


@dataclass
class Found:
    """Of one way: what was in use before, seconds by what they are of, MiB that each engine has on
    the GPU while both sleep, GiB of host memory that both engines and gpuwmd took by then."""

    mib_before: int
    gib_before: float
    seconds: dict[str, list[float]] = field(default_factory=dict)
    asleep_mib: float | None = None
    host_gib: float | None = None

    def add(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)

    def median(self, what: str) -> float | None:
        return statistics.median(self.seconds[what]) if what in self.seconds else None


def park(run: Run) -> None:
    """8.0 billion parameters, default compilation and graphs."""
    turns(run, ("dense", "dense"), run.cache("park"), **COMPILED)


def park_small(run: Run) -> None:
    """1.5 billion, eager. The engines have other tokens, so that each token tells whose it is."""
    turns(run, ("half-1", "half-2"), {})


def turns(run: Run, models: tuple[str, str], environment: dict[str, str], **llm: Any) -> None:
    given: dict[str, Any] = {
        "environment": environment,
        "enable_sleep_mode": True,
        "gpu_memory_utilization": UTILIZATION,
        **llm,
    }
    run.head()
    found: dict[str, Found] = {}
    expected: list[dict[str, str]] = []
    for way in WAYS:
        found[way] = Found(sum(run.gpus.settled_mib()), host_gib())
        with service(run, way) as where:
            engines = started(run, way, models, {**given, "environment": {**environment, **where}})
            expected = expected or [engine.hashes() or {} for engine in engines]
            take_turns(run, way, engines, expected, found[way])
            run.end()
    figures(run, found)


# ---- gpuwmd -------------------------------------------------------------------------------------


@contextlib.contextmanager
def service(run: Run, way: str) -> Iterator[dict[str, str]]:
    """A gpuwmd for the engines of one way. Gives the environment that names it."""
    if way == WAYS[0]:
        yield {}
        return
    before, real = os.environ["GPUWM_SOCKET"], run.service
    words: list[str] = []
    if not run.host:  # a version on host has no host memory to leave for
        share = TIGHT if way == "tight" else WIDE
        words = ["--budget", f"*={int(share * run.gpus.total_mib())}M"]
    roots = [run.state / "models"]
    run.service = Service(real.programs, run.out / f"gpuwmd-{run.report.part}-{way}", roots, *words)
    try:
        yield {"GPUWM_SOCKET": os.environ["GPUWM_SOCKET"]}
    finally:
        run.end()
        run.service.stop()
        run.service = real
        os.environ["GPUWM_SOCKET"] = before


def held_mib(run: Run, way: str) -> float:
    """What gpuwmd holds on GPUs for the engines of a way."""
    status = (run.service.status() if way != WAYS[0] else None) or {"devices": []}
    used = [int(each["used"]) for each in status["devices"] if each["kind"] == "cuda"]
    return sum(used) / (1 << 20)


def host_gib() -> float:
    """Host memory that is in use: the page cache does not count."""
    with open("/proc/meminfo") as file:
        sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in file)}
    return (sizes["MemTotal"] - sizes["MemAvailable"]) / (1 << 20)


# ---- turns --------------------------------------------------------------------------------------


def started(run: Run, way: str, models: tuple[str, str], given: dict[str, Any]) -> list[Engine]:
    """Two engines. The first one has to sleep before the second one starts."""
    engines: list[Engine] = []
    for number, model in enumerate(models, 1):
        for engine in engines:
            engine.ask(f"sleep {LEVEL}")
            processes.told([engine], "sleep", START_S)
        extra = None if way == WAYS[0] else auto(f"park-{number}@v1")
        engine = run.engine(f"{way}-{number}", model, extra, **given)
        run.measured(engine, None, ends=False)
        engines.append(engine)
    return engines


def take_turns(
    run: Run, way: str, engines: list[Engine], expected: list[dict[str, str]], found: Found
) -> None:
    """The second one is awake at first, and at the end of each turn."""
    one, other = engines
    found.add("sleep, first", seconds_of(one, "sleep"))
    found.add("sleep, first", told(other, f"sleep {LEVEL}", "sleep")["seconds"]["sleep"])
    memory(run, way, found, engines)
    told(other, "wake", "wake")
    tokens: dict[str, Any] = {}
    for number in range(1, run.turns + 1):
        turn(run, way, found, other, one, tokens)
        compares = number % COMPARED_EVERY == 0 or number == run.turns
        if compares:
            compared(run, one, expected[0])
        turn(run, way, found, one, other, tokens)
        if compares:
            compared(run, other, expected[1])


def turn(
    run: Run, way: str, found: Found, sleeps: Engine, wakes: Engine, tokens: dict[str, Any]
) -> None:
    """`sleeps` is awake. It sleeps and wakes, then sleeps again, and `wakes` has the GPU."""
    if way != WAYS[0]:
        found.add("sleep, later", told(sleeps, f"sleep {LEVEL}", "sleep")["seconds"]["sleep"])
        found.add("wake, weights still there", told(sleeps, "wake", "wake")["seconds"]["wake"])
    begin = monotonic()
    slept = told(sleeps, f"sleep {LEVEL}", "sleep")["seconds"]["sleep"]
    woken = told(wakes, "wake", "wake")["seconds"]["wake"]
    question = asking.Question("first", PROMPT, tokens=1, reset=False)
    answer = told(wakes, question.line(), "generated")
    found.add("to the other's first token", monotonic() - begin)
    found.add("sleep, later", slept)
    found.add(
        "wake, weights still there" if way == "wide" else "wake, weights from host",
        woken,
    )
    run.report.record("turn", way=way, sleep=slept, wake=woken, first=answer["seconds"][0])
    before = tokens.setdefault(wakes.name, answer["tokens"])
    if answer["tokens"] != before:
        run.report.check(False, f"{wakes.name} answers {answer['tokens']}, before {before}")


def compared(run: Run, engine: Engine, expected: dict[str, str]) -> None:
    """All batches, with those of vLLM's own load before its first sleep."""
    told(engine, "again", "answered")
    names = differing(expected, engine.hashes())
    what = f"{engine.name}, awake again, answers as vLLM's own load: every bit"
    run.report.check(not names, f"{what}: {', '.join(names) or 'all batches'}")


def told(engine: Engine, line: str, event: str) -> dict[str, Any]:
    """Asks, and waits for the answer."""
    count = engine.log.count(event)
    engine.ask(line)
    processes.told([engine], event, START_S, count + 1)
    found = engine.log.event(event)
    assert found is not None
    return found


def seconds_of(engine: Engine, word: str) -> float:
    found = engine.log.event(word)
    assert found is not None
    return float(found["seconds"][word])


def memory(run: Run, way: str, found: Found, engines: list[Engine]) -> None:
    """While all engines sleep."""
    used = sum(run.gpus.settled_mib()) - found.mib_before
    held = 0.0 if run.host else held_mib(run, way)
    found.asleep_mib = (used - held) / len(engines)
    found.host_gib = host_gib() - found.gib_before


# ---- the table ----------------------------------------------------------------------------------


def figures(run: Run, found: dict[str, Found]) -> None:
    run.report.head("medians, s", *WAYS)
    names = dict.fromkeys(what for each in found.values() for what in each.seconds)
    for what in names:
        run.report.row(what, *(each.median(what) for each in found.values()))
    run.report.row("MiB of each on the GPU, asleep", *(each.asleep_mib for each in found.values()))
    run.report.row("GiB on host, all asleep", *(each.host_gib for each in found.values()))
    for way, each in found.items():
        run.report.record(
            "park", way=way, seconds=each.seconds, mib=each.asleep_mib, gib=each.host_gib
        )
    for (what, way), goal in GOALS.items():
        median = found[way].median(what)
        run.report.check(
            median is not None and (run.host or median <= goal),
            f"{what}, {way}: at most {goal:g} s: {median if median is None else round(median, 3)}",
        )
