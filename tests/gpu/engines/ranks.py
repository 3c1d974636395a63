"""Parts of two ranks. They need two GPUs, or the option --one-card."""

from __future__ import annotations

import os
from typing import Any

from parts import COMPILED, CUT, auto, four_ways, load_plain, raw
from processes import HERE
from running import Run
from standing_http import standby_http
from swapping import swap_http

TWO: dict[str, Any] = {"tensor_parallel_size": 2}
# --one-card: how both ranks share the first GPU. one_card.py has the reasons.
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
ONE_CARD: dict[str, Any] = {
    "distributed_executor_backend": "mp",
    "disable_custom_all_reduce": True,  # it needs peers
    "worker_cls": "one_card.Worker",
    "worker_extension_cls": "",  # the worker has its methods
    "gpu_memory_utilization": 0.2,
    "kv_cache_memory_bytes": 2 << 30,  # a profile would count the other rank's memory
}


def one_card() -> dict[str, Any]:
    """What engines of two ranks get besides. Sets the environment that their processes need."""
    path = os.environ.get("PYTHONPATH", "")
    os.environ.update(LOOPBACK, PYTHONPATH=f"{HERE}{os.pathsep}{path}" if path else str(HERE))
    return ONE_CARD


def two(run: Run) -> dict[str, Any]:
    """What an engine of two ranks is started with."""
    return {**TWO, **run.ranks}


def tp2(run: Run) -> None:
    """Eager; then an engine of one rank is refused the version of two."""
    enough = run.host or run.ranks or len(run.gpus) >= 2
    if not run.report.check(bool(enough), f"two GPUs: {len(run.gpus)}"):
        return
    run.head()
    base = run.measured(run.engine("default", "dense", **two(run)), None)
    four_ways(run, "dense", base, **two(run))
    raw(run, "dense", base, **two(run))
    load = {"ref": "dense@tp2", "mode": "load"}
    run.refused(run.engine("one-rank", "dense", load), "tp")


def tp2_cut(run: Run) -> None:
    """From checkpoints that were cut for the ranks; then another number of ranks is refused."""
    for model, plan in (("dense", "llama"), ("moe", "qwen")):
        run.head()
        base = run.measured(run.engine(f"{model}-default", model, **two(run)), None)
        raw(run, model, base, model, cut=plan, **two(run))
    load_plain(run, "dense", f"dense@{CUT}", 2, "llama")
    extra = {"ref": f"dense@{CUT}", "mode": "raw"}
    run.refused(run.engine("one-rank", "dense", extra), "a part for each of 2 ranks")


def tp2_graphs(run: Run) -> None:
    given, warm = {**two(run), **COMPILED}, run.cache("tp2")
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
    swap_http(run, **two(run))


def tp2_standby(run: Run) -> None:
    standby_http(run, **two(run))


def tp2_moe(run: Run) -> None:
    """Experts, and with expert parallelism, whose parts lie otherwise."""
    run.head()
    base = run.measured(run.engine("default", "moe", **two(run)), None)
    four_ways(run, "moe", base, **two(run))
    experts = {**two(run), "enable_expert_parallel": True}
    base = run.measured(run.engine("experts-default", "moe", **experts), None)
    run.way(
        run.measured(run.engine("experts-first", "moe", auto("moe@ep"), **experts), base), "built"
    )
    run.way(
        run.measured(run.engine("experts-next", "moe", auto("moe@ep"), **experts), base), "attached"
    )
    load = {"ref": "moe@ep", "mode": "load"}
    run.refused(run.engine("no-experts", "moe", load, **two(run)), "experts")
