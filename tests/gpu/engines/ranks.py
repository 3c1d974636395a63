"""Parts that need two GPUs."""

from __future__ import annotations

from typing import Any

from parts import COMPILED, auto, four_ways, raw
from running import Run
from standing_http import standby_http
from swapping import swap_http

TWO: dict[str, Any] = {"tensor_parallel_size": 2}


def tp2(run: Run) -> None:
    """Eager; then an engine of one rank is refused the version of two."""
    if not run.report.check(run.host or len(run.gpus) >= 2, f"two GPUs: {len(run.gpus)}"):
        return
    run.head()
    base = run.measured(run.engine("default", "dense", **TWO), None)
    four_ways(run, "dense", base, **TWO)
    raw(run, "dense", base, **TWO)
    load = {"ref": "dense@tp2", "mode": "load"}
    run.refused(run.engine("one-rank", "dense", load), "tp")


def tp2_graphs(run: Run) -> None:
    given, warm = {**TWO, **COMPILED}, run.cache("tp2")
    run.head()
    base = run.measured(run.engine("default-cold", "dense", environment=warm, **given), None)
    run.measured(run.engine("default-warm", "dense", environment=warm, **given), base)
    run.measured(
        run.engine("first-warm", "dense", auto("dense@tp2g"), environment=warm, **given), base
    )
    run.quick(
        run.measured(
            run.engine("next-warm", "dense", auto("dense@tp2g"), environment=warm, **given), base
        )
    )


def tp2_swap(run: Run) -> None:
    swap_http(run, **TWO)


def tp2_standby(run: Run) -> None:
    standby_http(run, **TWO)


def tp2_moe(run: Run) -> None:
    """Experts, and with expert parallelism, whose parts lie otherwise."""
    run.head()
    base = run.measured(run.engine("default", "moe", **TWO), None)
    four_ways(run, "moe", base, **TWO)
    experts = {**TWO, "enable_expert_parallel": True}
    base = run.measured(run.engine("experts-default", "moe", **experts), None)
    run.way(
        run.measured(run.engine("experts-first", "moe", auto("moe@ep"), **experts), base), "built"
    )
    run.way(
        run.measured(run.engine("experts-next", "moe", auto("moe@ep"), **experts), base), "attached"
    )
    load = {"ref": "moe@ep", "mode": "load"}
    run.refused(run.engine("no-experts", "moe", load, **TWO), "experts")
