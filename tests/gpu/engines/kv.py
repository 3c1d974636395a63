"""The parts `kv`, `kv-graphs`, `kv-sleep` and `kv2`: a prefill engine puts the KV of prompts into a
region of blocks, and a decode engine gets it from there. Beside it: an engine that computes, and
vLLM's own connectors."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import statistics
from collections.abc import Iterator
from typing import Any

import processes
import region
from asking import Question
from processes import Engine, Failed
from running import START_S, Run

LENGTHS = (1000, 30000)  # tokens of the prompts
BLOCK = 16  # tokens of a block of vLLM's
TIMES = 5  # each time to the first token is the median of so many
ANSWER_S = 90.0
GIB = 8  # of the region: 4,096 blocks of 8.0 billion parameters' KV
# KV for one prompt and its answer. The GPU has room for four such engines beside the region and a
# version. One step takes a whole prompt: vLLM's ExampleConnector keeps only what the first step of
# a prompt computes, and all ways are to be measured in the same steps.
LONG: dict[str, Any] = {
    "max_model_len": 32768,
    "max_num_batched_tokens": 32768,
    "max_num_seqs": 8,
    "kv_cache_memory_bytes": 5 << 30,
    "on_request": True,
}
OFFLOADED = 6 << 30  # bytes of host memory for vLLM's OffloadingConnector
FILES = 6 << 30  # what must be free in a folder for the files of vLLM's ExampleConnector
# Full graphs skip the hooks of layers. The step that follows a hit has 16 tokens or fewer.
FULL: dict[str, Any] = {
    "enforce_eager": False,
    "compilation_config": {
        "cudagraph_mode": "FULL",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
    },
}


# ---- what engines are asked ---------------------------------------------------------------------


def connector(run: Run, role: str, **extra: Any) -> dict[str, Any]:
    """What an engine is started with."""
    return {
        "kv_transfer_config": {
            "kv_connector": "GpuwmConnector",
            "kv_connector_module_path": "gpuwm.vllm.kv",
            "kv_role": f"kv_{role}",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"region": run.report.part, "gib": GIB, **extra},
        }
    }


def region_of(run: Run) -> str:
    """The region of the first rank."""
    return f"{run.report.part}-r0"


@contextlib.contextmanager
def random_hashes(run: Run, *others: str) -> Iterator[None]:
    """Python's hashes, and with them vLLM's own keys of prefixes, differ from process to process.
    Ends what the part made: engines, its region and `others`, which would stay."""
    if run.spares:
        run.spares.stop()  # they have the fixed seed
    seed = os.environ.pop("PYTHONHASHSEED", None)
    try:
        yield
    finally:
        run.kill_all()
        for name in (region_of(run), *others):
            with contextlib.suppress(RuntimeError):  # it was not made
                region.remove(name)
        if run.spares:
            run.spares.stop()
        if seed is not None:
            os.environ["PYTHONHASHSEED"] = seed


def begin(engine: Engine, question: Question) -> int:
    """Returns how many answers the engine has told when this one is there."""
    engine.ask(question.line())
    return engine.log.count("generated") + 1


def ask(run: Run, engine: Engine, name: str, prompt: list[list[int]], **how: Any) -> dict[str, Any]:
    """The event "generated". how: of Question."""
    asked = begin(engine, Question(name, prompt, **how))
    processes.told([engine], "generated", ANSWER_S, asked)
    found = engine.log.event("generated") or {}
    run.report.record("generated", engine=engine.name, **found)
    return found


def first_token(run: Run, engine: Engine, prompt: list[list[int]], times: int = TIMES) -> float:
    """Seconds to the first token, and a check that what should be there was."""
    found = ask(run, engine, "first token", prompt, tokens=1, times=times)
    return float(statistics.median(found["seconds"]))


def whole_blocks(length: int) -> int:
    """Tokens of a prompt of that length that may come from a cache: whole blocks, and at least one
    token is computed."""
    return (length - 1) // BLOCK * BLOCK


def hit(run: Run, found: dict[str, Any], length: int, what: str) -> bool:
    cached = found["cached"]
    wanted = whole_blocks(length)
    # vLLM's own connectors may say that all of the prompt was there.
    return run.report.check(
        all(wanted <= tokens <= length for tokens in cached),
        f"{what}: {wanted} of {length} tokens come from the cache: {cached}",
    )


def missed(run: Run, found: dict[str, Any], what: str) -> bool:
    return run.report.check(
        not any(found["cached"]), f"{what}: nothing comes from a cache: {found['cached']}"
    )


def equal(run: Run, one: dict[str, Any], other: dict[str, Any], what: str) -> bool:
    """Tokens. A difference is shown with both log-probabilities."""
    same = run.report.check(one["tokens"] == other["tokens"] != [], f"{what}: the same tokens")
    if not same:
        run.report.note(difference(one, other))
    else:
        bits = "and" if one["likely"] == other["likely"] else "but not"
        run.report.note(f"  {bits} the same log-probabilities in every bit")
    return same


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    if len(one["tokens"]) != len(other["tokens"]):
        return f"{len(one['tokens'])} tokens and {len(other['tokens'])}"
    pairs = zip(one["tokens"], other["tokens"], strict=True)
    for at, (token, token_other) in enumerate(pairs):
        if token != token_other:
            return f"token {at}: {one['likely'][at]} and {other['likely'][at]}"
    return "equal"


def started(*engines: Engine) -> None:
    processes.told(engines, "started", START_S)


# ---- a prefill engine and a decode engine -------------------------------------------------------


def pair(
    run: Run, alone: Engine, prefill: Engine, decode: Engine, lengths: tuple[int, ...] = LENGTHS
) -> None:
    """What the prefill engine puts, and what the decode engine answers with it."""
    for number, length in enumerate(lengths, 1):
        prompt = [[number, length]]
        computed = ask(run, alone, "computed", prompt)
        # The same blocks are there as for the decode engine, so the same kernels run.
        again = ask(run, alone, "own cache", prompt, reset=False)
        hit(run, again, length, "one engine's own prefix cache")
        put = ask(run, prefill, "put", prompt, tokens=1)
        got = ask(run, decode, "got", prompt)
        hit(run, got, length, f"decode, {length} tokens")
        equal(run, again, got, f"decode and one engine with its own cache, {length} tokens")
        if computed["tokens"] == again["tokens"]:
            equal(run, computed, got, f"decode and one engine that computes, {length} tokens")
        else:
            run.report.note(
                f"one engine answers otherwise with its own cache: {difference(computed, again)}"
            )
        run.report.record("put", length=length, seconds=put["seconds"])


def times(run: Run, ways: dict[str, Engine], lengths: tuple[int, ...] = LENGTHS) -> None:
    """Rows: the first way is computing; the others have what they need by now."""
    run.report.head(
        "first token, ms", *(f"{length} tokens" for length in lengths), "ratio", "ratio"
    )
    base: list[float] = []
    for way, engine in ways.items():
        try:
            row = [
                1000 * first_token(run, engine, [[number, length]])
                for number, length in enumerate(lengths, 1)
            ]
        except Failed as failed:
            run.report.check(False, f"{way}: {failed}")
            continue
        base = base or row
        ratios = [ours / theirs for ours, theirs in zip(row, base, strict=True)]
        run.report.row(way, *row, *ratios)
        run.report.record("first token", way=way, ms=row, of_computing=ratios)


def kv(run: Run) -> None:
    with random_hashes(run):
        ref = {"ref": "dense@kv"}
        alone = run.engine("alone", "dense", ref, **LONG)
        prefill = run.engine("prefill", "dense", ref, **LONG, **connector(run, "producer"))
        decode = run.engine("decode", "dense", ref, **LONG, **connector(run, "consumer"))
        started(alone, prefill, decode)
        pair(run, alone, prefill, decode)
        run.report.note(f"region: {region.figures(region_of(run))}")
        times(run, {"computed": alone, "GpuwmConnector": decode})
        run.end(prefill, decode)
        others(run, alone, ref)


# ---- vLLM's own connectors ----------------------------------------------------------------------


def example(folder: str) -> dict[str, Any]:
    return {
        "kv_transfer_config": {
            "kv_connector": "ExampleConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": folder},
        }
    }


OFFLOADING: dict[str, Any] = {
    "kv_transfer_config": {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": OFFLOADED},
    }
}


def has_room(folder: pathlib.Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free > FILES


def others(run: Run, alone: Engine, ref: dict[str, Any]) -> None:
    """Each in one engine, which is asked twice: the tier of OffloadingConnector belongs to its
    engine."""
    folders = {"on disk": run.state / "example", "in /dev/shm": pathlib.Path("/dev/shm/example")}
    ways = {}
    try:
        for name, folder in folders.items():
            if not has_room(folder.parent):
                run.report.note(f"{folder.parent} has no room for ExampleConnector's files")
                continue
            folder.mkdir(exist_ok=True)
            given = {**LONG, **example(str(folder))}
            ways[f"ExampleConnector {name}"] = run.engine(
                f"example-{folder.parent.name}", "dense", ref, **given
            )
        ways["OffloadingConnector"] = run.engine("offloading", "dense", ref, **LONG, **OFFLOADING)
        fill_and_time(run, alone, ways)
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def fill_and_time(run: Run, alone: Engine, ways: dict[str, Engine]) -> None:
    for way, engine in list(ways.items()):
        try:
            started(engine)
            fill(run, engine, way)
        except Failed as failed:
            run.report.check(False, f"{way}: {failed}")
            del ways[way]
    times(run, {"computed": alone, **ways})


def fill(run: Run, engine: Engine, way: str) -> None:
    """Each prompt once; then it is asked again, and is to come from the connector."""
    for number, length in enumerate(LENGTHS, 1):
        ask(run, engine, "put", [[number, length]], tokens=1)
        for short in range(3):  # what is stored goes on in the steps that follow
            ask(run, engine, "step", [[900 + short, BLOCK + 1]], tokens=2)
        found = ask(run, engine, "got", [[number, length]], tokens=1)
        hit(run, found, length, f"{way}, {length} tokens")


# ---- graphs, and two GPUs -----------------------------------------------------------------------


def kv_graphs(run: Run) -> None:
    """Compiled, each decode step in a full graph, which skips the hooks of layers. One cache of
    compiled code: the first engine fills it."""
    warm = run.cache("kv-graphs")
    given = {**LONG, **FULL, "environment": warm}
    with random_hashes(run):
        ref = {"ref": "half-1@kv-graphs"}
        alone = run.engine("alone", "half-1", ref, **given)
        started(alone)
        prefill = run.engine("prefill", "half-1", ref, **given, **connector(run, "producer"))
        decode = run.engine("decode", "half-1", ref, **given, **connector(run, "consumer"))
        started(prefill, decode)
        pair(run, alone, prefill, decode)
        times(run, {"computed": alone, "GpuwmConnector": decode})
        for engine in (alone, decode):
            graphs = engine.log.numbers.get("graphs s")
            run.report.check(
                run.host or graphs is not None, f"{engine.name} captured graphs: {graphs} s"
            )
            run.report.check(
                not engine.says("Overriding cudagraph_mode"), f"{engine.name} has full graphs"
            )


def kv_sleep(run: Run) -> None:
    """A decode engine that sleeps, with its cache discarded, and wakes finds KV as before."""
    given = {**LONG, "enable_sleep_mode": True}
    with random_hashes(run):
        ref = {"ref": "dense@kv-sleep"}
        prefill = run.engine("prefill", "dense", ref, **LONG, **connector(run, "producer"))
        decode = run.engine("decode", "dense", ref, **given, **connector(run, "consumer"))
        started(prefill, decode)
        prompt = [[1, LENGTHS[0]]]
        ask(run, prefill, "put", prompt, tokens=1)
        before = ask(run, decode, "got", prompt)
        hit(run, before, LENGTHS[0], "before sleep")
        for number, level in enumerate((1, 2), 1):
            for word in (f"sleep {level}", "wake"):
                decode.ask(word)
                processes.told([decode], word.split()[0], START_S, number)
            after = ask(run, decode, "after sleep", prompt)
            hit(run, after, LENGTHS[0], f"after sleep at level {level}")
            equal(run, before, after, f"before and after sleep at level {level}")


def kv2(run: Run) -> None:
    """The prefill engine has the first GPU and the region, the decode engine the second one. Both
    see both, each with its own first. Fresh processes: what is visible counts from their start."""
    if not run.report.check(run.host or len(run.gpus) >= 2, f"two GPUs: {len(run.gpus)}"):
        return
    first, second = ({"CUDA_VISIBLE_DEVICES": devices} for devices in ("0,1", "1,0"))
    with random_hashes(run):
        here, there = {"ref": "dense@kv2-first"}, {"ref": "dense@kv2-second"}
        given: dict[str, Any] = {**LONG, "fresh": True}
        alone = run.engine("alone", "dense", here, environment=first, **given)
        prefill = run.engine(
            "prefill", "dense", here, environment=first, **given, **connector(run, "producer")
        )
        other = run.engine("second-alone", "dense", there, environment=second, **given)
        started(alone, prefill, other)
        role = (
            connector(run, "consumer") if run.host else connector(run, "consumer", device="cuda:1")
        )
        decode = run.engine("decode", "dense", there, environment=second, **given, **role)
        started(decode)
        pair(run, alone, prefill, decode)
        run.report.note(f"region: {region.figures(region_of(run))}")
        times(run, {"computed": other, "GpuwmConnector": decode})
