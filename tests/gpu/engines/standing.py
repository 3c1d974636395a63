"""The part `standby`: an engine is killed, and one that stood by beside it takes over. Both are
processes of one rank without an API server, so that the engines' own part is measured."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import processes
from parts import auto
from processes import Engine
from running import START_S, Run
from swapping import LIMITS

REF = "standby@v1"
UTILIZATION = 0.85  # what is left holds a second context, and what a start needs for a moment
COST_MIB = 1 << 10  # the goal: what a standby may cost
TAKEOVER_S = 0.5  # the goal: from the kill to the first answer


def standby(run: Run) -> None:
    """A cold start; an engine that serves; a standby beside it; the kill; the next standby."""
    warm = run.cache("standby")
    run.head()
    given: dict[str, Any] = {**LIMITS, "gpu_memory_utilization": UTILIZATION}
    base = run.engine("alone", "half-1", auto(REF), environment=warm, **given)
    run.way(run.measured(base, None), "built")
    given |= {"environment": warm, "stands_by": True}
    extra = {**auto(REF), "standby": str(run.out / "standby.lock")}
    empty = run.gpus.settled_mib()
    serves = run.engine("serves", "half-1", extra, **given)
    processes.told([serves], "started", START_S)
    serves.ask("occupy")
    run.measured(serves, base, ends=False)
    rows: list[tuple[str, dict[str, float]]] = []
    for number in (1, 2):
        stands = run.engine(f"stands-{number}", "half-1", extra, **given)
        cost(run, serves, stands, empty)
        serves.ask("again")
        processes.answered([serves], START_S, 2)
        run.same(base, serves)
        rows.append((f"takeover {number}", take_over(run, serves, stands)))
        run.same(base, stands)
        serves = stands
    figures(run, "seconds", rows, "first answers")


def cost(run: Run, serves: Engine, stands: Engine, empty: list[int]) -> None:
    """What is in use beside the engine that serves, as soon as the other one stands by."""
    before = run.gpus.settled_mib()
    processes.told([stands], "started", START_S)
    after = run.gpus.settled_mib()
    mib = sum(after) - sum(before)
    seconds = (stands.log.event("started") or {})["seconds"]
    run.report.record(
        "standby",
        mib=mib,
        serves_mib=sum(before) - sum(empty),
        peak_mib=stands.peak.most,
        seconds=seconds,
    )
    run.report.note(f"its start took {stands.peak.most} MiB for a moment, LLM() {seconds}")
    run.report.check(
        run.host or mib <= COST_MIB, f"{stands.name} costs at most {COST_MIB} MiB: {mib} MiB"
    )


def take_over(run: Run, serves: Engine, stands: Engine) -> dict[str, float]:
    """Seconds of each step from the kill on."""
    marks = [time.monotonic()]
    os.kill(serves.pid, signal.SIGKILL)
    stands.ask("occupy")
    exited = os.waitid(os.P_PID, serves.pid, os.WEXITED | os.WNOWAIT)
    assert exited is not None
    marks.append(time.monotonic())
    processes.told([stands], "occupy", START_S)
    marks.append(time.monotonic())
    processes.answered([stands], START_S)
    answered = (stands.log.event("answered") or {})["seconds"]
    occupied = (stands.log.event("occupy") or {})["seconds"]["occupy"]
    run.end(serves)
    return {
        "gone": marks[1] - marks[0],
        "occupied": occupied,
        "first batch": answered["first batch"],
        "first answers": marks[2] - marks[0] + answered["first batch"],
    }


def figures(run: Run, title: str, rows: list[tuple[str, dict[str, float]]], end: str) -> None:
    """Of takeovers. end: the column that has the time from the kill to the goal."""
    run.report.head(title, *rows[0][1])
    for label, seconds in rows:
        run.report.row(label, *seconds.values())
        run.report.record("takeover", label=label, seconds=seconds)
    most = max(seconds[end] for _, seconds in rows)
    run.report.check(
        run.host or most <= TAKEOVER_S,
        f"{end}: at most {TAKEOVER_S:g} s from the kill: {most:.3f} s",
    )
