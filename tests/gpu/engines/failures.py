"""Parts in which gpuwmd or an engine is killed."""

from __future__ import annotations

import os
from collections.abc import Callable

import processes
from parts import ENGINES, auto
from processes import Engine, Failed
from running import START_S, Run

BUILDING = "Loading weights took"  # vLLM's loader has read the files; the publish comes next
STARTING = "Loading model from scratch"  # V2's line, and
STARTING_V1 = "Starting to load model"
WAITERS = 2


def starts(engine: Engine) -> bool:
    return engine.says(STARTING) or engine.says(STARTING_V1)


def builds(engine: Engine) -> bool:
    return engine.says(BUILDING)


def kill(run: Run) -> None:
    """gpuwmd killed while an engine starts, builds and serves, and not there; a builder killed."""
    run.head()
    base = run.measured(run.engine("default", "small"), None)
    killed_daemon(run, base, "builds", builds)
    run.measured(engine_of(run, "after-it", "small@builds"), base)
    killed_daemon(run, base, "starts", starts)
    serving(run, base)
    killed_builder(run, base)
    unreachable(run, base)


def engine_of(run: Run, name: str, ref: str, **extra: object) -> Engine:
    return run.engine(name, "small", {**auto(ref, ENGINES), **extra})


def killed_daemon(run: Run, base: Engine, name: str, moment: Callable[[Engine], bool]) -> None:
    """Either the engine answers as it should, or it ends with an error of gpuwm's."""
    engine = engine_of(run, f"gpuwmd-killed-while-it-{name}", "small@builds")
    try:
        processes.wait([engine], moment, START_S, f"come to where it {name}")
        run.service.kill()
        processes.answered([engine], START_S)
        run.same(base, engine)
    except Failed as failed:
        ours = not engine.alive and "gpuwm" in engine.why()
        run.report.check(ours, f"{engine.name}: it says why, and ends: {failed}")
    run.service.wait_until_ready()
    run.end(engine)


def serving(run: Run, base: Engine) -> None:
    engines = [engine_of(run, f"serves-{n}", "small@serves") for n in range(2)]
    processes.answered(engines, START_S)
    leases = run.service.leases()
    run.service.kill()
    run.service.wait_until_ready()
    for engine in engines:
        engine.ask("again")
    processes.answered(engines, START_S, 2)
    for engine in engines:
        run.same(base, engine)
    run.report.check(
        run.service.leases() == leases > 0,
        f"{leases} leases before and {run.service.leases()} after",
    )
    run.end()


def killed_builder(run: Run, base: Engine) -> None:
    """While others wait: one of them builds."""
    ref = "small@successor"
    builder = engine_of(run, "builder", ref)
    waiters: list[Engine] = []
    try:
        processes.wait([builder], starts, START_S, "begun to load")
        waiters = [engine_of(run, f"waits-{n}", ref) for n in range(WAITERS)]
        processes.wait([builder], builds, START_S, "read the files")
    finally:
        builder.kill()
        run.running.remove(builder)
    processes.answered(waiters, 2 * START_S)
    ways = sorted(line["way"] for engine in waiters for line in engine.log.gpuwm)
    # The publish may have been complete when the signal came.
    run.report.check(
        ways in (["attached", "built"], ["attached"] * WAITERS), f"one successor: {ways}"
    )
    for engine in waiters:
        run.same(base, engine)
    run.end()


def unreachable(run: Run, base: Engine) -> None:
    """No gpuwmd: an error with what to do; with a fallback, vLLM's own load."""
    socket = str(run.state / "nobody.sock")
    run.refused(engine_of(run, "no-gpuwmd", "small@none", socket=socket), "gpuwm", socket)
    engine = engine_of(run, "no-gpuwmd-fallback", "small@none", socket=socket, fallback="auto")
    run.measured(engine, base, ends=False)
    run.report.check(engine.says("fallback"), "the fallback is logged")
    run.end()
    assert not os.path.exists(socket)
