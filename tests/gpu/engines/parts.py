"""The parts of a run on one GPU. Each stands alone, and has a limit in `PARTS`."""

from __future__ import annotations

import time
from typing import Any

import processes
from processes import Engine, Failed
from running import START_S, Run

COMPILED: dict[str, Any] = {"enforce_eager": False}
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
ENGINES = 4  # that share the GPU at most
DEFAULT: dict[str, Any] = {"gpu_memory_utilization": 0.92}  # vLLM's default
KV_ALIKE = 0.98  # the smallest KV cache of the largest: measured activations differ a little
SHARE = 0.23  # of the GPU for each of so many
RAW = "raw"  # what tags of plain checkpoints begin with
CUT = "cut"  # the tag of those that were cut for the ranks


def auto(ref: str, engines: int = 1) -> dict[str, Any]:
    """engines: so many share the GPU."""
    return {"ref": ref} if engines == 1 else {"ref": ref, "engines": engines}


def smoke(run: Run) -> None:
    """Attention as vLLM chooses it, else Triton's. What works is kept for the other parts."""
    base = None
    for attention in ("", "TRITON_ATTN"):
        run.attention = attention
        try:
            run.head()
            base = run.measured(run.engine(attention or "default", "tiny"), None)
            break
        except Failed as failed:
            run.report.note(str(failed))
            run.kill_all()
    if not run.report.check(base is not None, "vLLM's own load serves here"):
        return
    assert base is not None
    (run.state / "attention").write_text(run.attention)
    imports = (base.log.event("started") or {})["seconds"]
    run.report.note(f"attention: {base.log.backend or run.attention}; imports: {imports}")
    run.measured(run.engine("again", "tiny"), base)
    run.way(run.measured(run.engine("first", "tiny", auto("tiny@1")), base), "built")
    run.way(run.measured(run.engine("next", "tiny", auto("tiny@1")), base), "attached")
    compiled = run.measured(run.engine("compiled", "tiny", **COMPILED), None)
    run.measured(run.engine("compiled-next", "tiny", auto("tiny@1"), **COMPILED), compiled)


def several_ranks(base: Engine) -> Engine | None:
    return base if base.options.llm.get("tensor_parallel_size", 1) > 1 else None


def four_ways(run: Run, model: str, base: Engine, **given: Any) -> None:
    """First, next and raw, beside vLLM's own load. The version stays."""
    ref = f"{model}@{run.report.part}"
    first = run.measured(run.engine("first", model, auto(ref), **given), base)
    run.way(first, "built")
    run.small_peak(first, ref, several_ranks(base))
    following = run.measured(run.engine("next", model, auto(ref), **given), base)
    run.way(following, "attached")
    run.quick(following)


def load_plain(run: Run, model: str, tag: str, ranks: int, cut: str = "") -> float:
    """Loads a plain checkpoint for so many ranks. Seconds."""
    devices = dict.fromkeys(run.device(rank) for rank in range(ranks))
    words = ("--ranks", str(ranks), "--cut", cut) if cut else ()
    return run.service.load(run.state / "models" / model, tag, [*devices], *words)


def raw(
    run: Run, model: str, base: Engine, name: str = "raw", *, cut: str = "", **given: Any
) -> None:
    """From the checkpoint in GPU memory; then what that engine published is attached to. cut: the
    plan that gives each rank its share of the checkpoint; without, each has the whole."""
    tag, size = f"{model}@{CUT if cut else RAW}", given.get("tensor_parallel_size", 1)
    if run.service.version(tag) is None:
        seconds = load_plain(run, model, tag, size, cut)
        run.report.row(f"gpuwmctl load {tag}, s", seconds)
        run.report.record("load", name=tag, seconds=seconds)
    extra = {"ref": tag, "mode": "raw"}
    first = run.measured(run.engine(name, model, extra, **given), base)
    run.way(first, "built")
    run.small_peak(first, None, several_ranks(base))
    run.way(run.measured(run.engine(f"{name}-next", model, extra, **given), base), "attached")
    # All that gpuwm holds is taken off what the next engine may fill.
    run.service.retire_all(tag, *(line["version"] for line in first.log.gpuwm))


def dense(run: Run) -> None:
    """Eager, with both model runners."""
    run.head()
    base = run.measured(run.engine("default", "dense"), None)
    four_ways(run, "dense", base)
    raw(run, "dense", base)
    older = run.measured(run.engine("V1-default", "dense", environment=V1), None)
    run.measured(run.engine("V1-next", "dense", auto("dense@dense"), environment=V1), older)


def compiled_ways(run: Run, model: str, *, cold_next: bool) -> Engine:
    """vLLM's default compilation and graphs: its cache empty, then filled."""
    one, other = run.cache(f"{run.report.part}-default"), run.cache(f"{run.report.part}-gpuwm")
    ref = f"{model}@{run.report.part}"
    base = run.measured(run.engine("default-cold", model, environment=one, **COMPILED), None)
    run.measured(run.engine("default-warm", model, environment=one, **COMPILED), base)
    run.measured(run.engine("first-warm", model, auto(ref), environment=one, **COMPILED), base)
    following = run.measured(
        run.engine("next-warm", model, auto(ref), environment=one, **COMPILED), base
    )
    run.way(following, "attached")
    run.quick(following)
    if cold_next:
        run.measured(run.engine("next-cold", model, auto(ref), environment=other, **COMPILED), base)
    return base


def graphs(run: Run) -> None:
    run.head()
    base = compiled_ways(run, "dense", cold_next=True)
    one = run.cache("graphs-default")
    raw(run, "dense", base, "raw-warm", environment=one, **COMPILED)


def whole(run: Run) -> None:
    """Programs that import everything themselves: what a user waits for."""
    warm = run.cache("graphs-default")
    run.head()
    base = run.measured(
        run.engine("default", "dense", fresh=True, environment=warm, **COMPILED), None
    )
    given: dict[str, Any] = {"fresh": True, "environment": warm, **COMPILED}
    run.measured(run.engine("first", "dense", auto("dense@whole"), **given), base)
    following = run.measured(run.engine("next", "dense", auto("dense@whole"), **given), base)
    for engine in (base, following):
        run.report.row(f"{engine.name}, s", *(engine.log.event("started") or {})["seconds"].items())


def moe(run: Run) -> None:
    run.head()
    base = run.measured(run.engine("default", "moe"), None)
    four_ways(run, "moe", base)
    newer = run.measured(run.engine("V2-default", "moe", environment=V2), None)
    run.measured(run.engine("V2-next", "moe", auto("moe@moe"), environment=V2), newer)
    raw(run, "moe", base)


def moe_graphs(run: Run) -> None:
    run.head()
    compiled_ways(run, "moe", cold_next=False)


def fp8(run: Run) -> None:
    """Quantised as it is loaded; its version is refused to an engine that is not."""
    quantized: dict[str, Any] = {"quantization": "fp8"}
    run.head()
    base = run.measured(run.engine("default", "dense", **quantized), None)
    four_ways(run, "dense", base, **quantized)
    raw(run, "dense", base, **quantized)
    load = {"ref": "dense@fp8", "mode": "load"}
    run.refused(run.engine("bfloat16-on-fp8", "dense", load), "quantization")


def fp8_graphs(run: Run) -> None:
    quantized: dict[str, Any] = {"quantization": "fp8", **COMPILED}
    warm = run.cache("fp8-graphs")
    run.head()
    base = run.measured(run.engine("default-cold", "dense", environment=warm, **quantized), None)
    run.measured(run.engine("default-warm", "dense", environment=warm, **quantized), base)
    run.measured(
        run.engine("first-warm", "dense", auto("dense@fp8g"), environment=warm, **quantized), base
    )
    run.quick(
        run.measured(
            run.engine("next-warm", "dense", auto("dense@fp8g"), environment=warm, **quantized),
            base,
        )
    )


# ---- several engines ----------------------------------------------------------------------------


def in_use(run: Run, engines: list[Engine], before: list[int], what: str) -> None:
    used = [now - then for now, then in zip(run.gpus.settled_mib(), before, strict=True)]
    tokens = [int(engine.log.numbers.get("KV tokens", 0)) for engine in engines]
    run.report.row(what, sum(used), sum(tokens), *tokens)
    by_process = run.gpus.processes_mib()
    run.report.record(
        "memory", what=what, used_mib=used, kv_tokens=tokens, processes_mib=by_process
    )


def four(run: Run) -> None:
    """At once, from nothing, with vLLM's default utilisation: one builds."""
    run.report.head("", "MiB in use", "KV tokens", "of each")
    if run.spares:
        run.spares.have(ENGINES)
    before = run.gpus.settled_mib()
    begin = time.monotonic()
    engines = [
        run.engine(f"at-once-{n}", "dense", auto("dense@four", ENGINES), **DEFAULT)
        for n in range(1, ENGINES + 1)
    ]
    processes.answered(engines, 2 * START_S)
    run.report.row("until all four answered, s", time.monotonic() - begin)
    in_use(run, engines, before, "4 at once, default utilisation")
    ways = sorted(line["way"] for engine in engines for line in engine.log.gpuwm)
    run.report.check(ways == ["attached"] * 3 + ["built"], f"one built and three attached: {ways}")
    for engine in engines[1:]:
        run.same(engines[0], engine)
    tokens = [engine.log.numbers.get("KV tokens", 0) for engine in engines]
    alike = min(tokens) > KV_ALIKE * max(tokens) > 0
    run.report.check(alike, f"each has a KV cache of about the same size, in tokens: {tokens}")
    for engine in engines:
        engine.ask("again")
    processes.answered(engines, START_S, 2)
    for engine in engines:
        run.same(engines[0], engine)
    run.end()


def several(run: Run) -> None:
    """1, 2 and 4 engines that share what one has by default, with vLLM's own load and with gpuwm.
    vLLM gets each one's share of the GPU, load format gpuwm the number of engines. One starts after
    the other: vLLM's own profile fails if another engine changes what is free meanwhile."""
    ways: list[tuple[str, dict[str, Any] | None, dict[str, Any]]] = [
        ("default", None, {"gpu_memory_utilization": SHARE}),
        ("gpuwm", auto("dense@several", ENGINES), DEFAULT),
    ]
    for name, gpuwm, given in ways:
        run.report.head(name, "MiB in use", "KV tokens", "of each")
        before = run.gpus.settled_mib()
        engines: list[Engine] = []
        for count in (1, 2, 4):
            while len(engines) < count:
                engines.append(run.engine(f"{name}-{len(engines) + 1}", "dense", gpuwm, **given))
                processes.answered(engines, START_S)
            in_use(run, engines, before, f"{count} of {name}")
        for engine in engines[1:]:
            run.same(engines[0], engine)
        run.end()


def sleep(run: Run) -> None:
    """Sleep mode: the builder's peak, and the answers after each level."""
    given: dict[str, Any] = {"enable_sleep_mode": True, "gpu_memory_utilization": 2 * SHARE}
    run.head()
    base = run.measured(run.engine("default", "dense", **given), None)
    first = run.measured(run.engine("first", "dense", auto("dense@sleep"), **given), base)
    run.small_peak(first, "dense@sleep")
    engine = run.measured(
        run.engine("next", "dense", auto("dense@sleep"), **given), base, ends=False
    )
    run.report.head("", "sleep s", "asleep MiB", "wake s")
    for number, level in enumerate((1, 1, 2), 2):
        engine.ask(f"sleep {level}")
        asleep = number - 1
        processes.told([engine], "sleep", START_S, asleep)
        used = [
            now - then for now, then in zip(run.gpus.settled_mib(), engine.peak.before, strict=True)
        ]
        engine.ask("wake")
        processes.told([engine], "wake", START_S, asleep)
        engine.ask("again")
        processes.answered([engine], START_S, number)
        seconds = [(engine.log.event(word) or {})["seconds"][word] for word in ("sleep", "wake")]
        run.report.row(f"level {level}", seconds[0], sum(used), seconds[1])
        run.report.record("sleep", level=level, seconds=seconds, asleep_mib=used)
        run.same(base, engine)
    run.end()


def lora(run: Run) -> None:
    """Without VLLM_BATCH_INVARIANT vLLM's kernels for adapters add in an order that changes from
    call to call (split-K with atomics), in its own load too."""
    given: dict[str, Any] = {
        "enable_lora": True,
        "max_lora_rank": 16,
        "lora": ("small-lora",),
        "environment": {"VLLM_BATCH_INVARIANT": "1"},
    }
    run.head()
    base = run.measured(run.engine("default", "small", **given), None)
    hashes = base.hashes() or {}
    changed = [
        name for name in hashes if "+" in name and hashes[name] != hashes[name.partition("+")[0]]
    ]
    run.report.check(len(changed) == len(hashes) // 2, "the adapter changes every batch's answers")
    run.way(run.measured(run.engine("first", "small", auto("small@lora"), **given), base), "built")
    run.way(
        run.measured(run.engine("next", "small", auto("small@lora"), **given), base), "attached"
    )


# In the order of their value: what runs, and the seconds after which the part is given up.
PARTS: dict[str, tuple[Any, int, str]] = {
    "smoke": (smoke, 180, "what works on this machine, with a tiny model"),
    "dense": (dense, 240, "8.0 billion parameters, eager, V2 and V1 model runner"),
    "graphs": (graphs, 420, "8.0 billion parameters, default compilation and graphs"),
    "four": (four, 150, "four engines started at once"),
    "fp8": (fp8, 200, "--quantization fp8, eager"),
    "moe": (moe, 200, "experts, eager"),
    "several": (several, 200, "memory for 1, 2 and 4 engines"),
    "moe-graphs": (moe_graphs, 260, "experts, default compilation and graphs"),
    "fp8-graphs": (fp8_graphs, 300, "--quantization fp8, default compilation and graphs"),
    "whole": (whole, 240, "whole starts: programs that import everything"),
    "sleep": (sleep, 120, "sleep mode"),
    "lora": (lora, 100, "LoRA adapters"),
}
