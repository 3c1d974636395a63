"""The part `kv-faults`: what becomes of KV in a region when engines and gpuwmd are killed, when an
engine moves to other weights, and when a prompt is new to all but its first tokens."""

from __future__ import annotations

import statistics
import time
from typing import Any

import processes
import region
from asking import Question
from kv import (
    ANSWER_S,
    LONG,
    ask,
    begin,
    connector,
    equal,
    hit,
    missed,
    random_hashes,
    region_of,
    started,
)
from models import MODELS
from processes import Engine, Failed
from running import Run

LONGEST = 30000
# When the prefill engine is killed: parts of the time that the prompt takes.
MOMENTS = (0.25, 0.5, 0.75)
SUFFIX = 77  # tokens
FREE_S = 10.0  # until gpuwmd has freed what a killed engine owned
SLACK = 1.5  # of the time of computing, for an answer of which some blocks may be there
# Four steps for the longest prompt. Batch invariance: an answer does not depend on how many blocks
# were there and how many were computed.
STEPS: dict[str, Any] = {
    **LONG,
    "max_num_batched_tokens": 8192,
    "environment": {"VLLM_BATCH_INVARIANT": "1"},
}
VERSIONS = ("kvswap@v1", "kvswap@v2")


def kv_faults(run: Run) -> None:
    with random_hashes(run, "kvswap-r0"):
        ref = {"ref": "dense@kv-faults"}
        decode = run.engine("decode", "dense", ref, **STEPS, **connector(run, "consumer"))
        victims = [
            run.engine(f"victim-{n}", "dense", ref, **STEPS, **connector(run, "producer"))
            for n in range(1, len(MOMENTS) + 1)
        ]
        started(decode, *victims)
        for number, victim in enumerate(victims, 50):  # what is compiled, is compiled now
            begin(victim, Question("warm", [[number, 9000]], tokens=1))
        processes.told(victims, "generated", ANSWER_S)
        killed(run, decode, victims)
        prefill = run.engine("prefill", "dense", ref, **STEPS, **connector(run, "producer"))
        stranger = run.engine("stranger", "dense", ref, **STEPS, **connector(run, "both"))
        started(prefill, stranger)
        prefix(run, decode, prefill, stranger)
        without_gpuwmd(run, decode, prefill)
        run.end()
        swapped(run)


# ---- engines are killed -------------------------------------------------------------------------


def killed(run: Run, decode: Engine, victims: list[Engine]) -> None:
    """Each victim in the middle of a prompt of its own."""
    took = ask(run, decode, "computed", [[10, LONGEST]], tokens=1, times=3)["seconds"]
    computing = statistics.median(took)
    run.report.head(
        "killed in the middle", "after s", "owned", "hit tokens", "answer s", "computed s"
    )
    for number, (moment, victim) in enumerate(zip(MOMENTS, victims, strict=True), 11):
        prompt = [[number, LONGEST]]
        right = ask(run, decode, "computed", prompt)
        missed(run, right, f"prompt {number} before anybody put it")
        asked = begin(victim, Question("put", prompt, tokens=1))
        time.sleep(moment * computing)
        owned = region.figures(region_of(run))["owned"]
        victim.look()
        ended = victim.log.count("generated") >= asked
        victim.kill()
        run.running.remove(victim)
        found = ask(run, decode, "after the kill", prompt)
        free = freed(run)
        cached, seconds = found["cached"][0], found["seconds"][0]
        run.report.row(victim.name, moment * computing, owned, cached, seconds, right["seconds"][0])
        run.report.check(not ended, f"{victim.name} had not answered")
        equal(run, right, found, f"after {victim.name}'s end")
        run.report.check(free, f"after {victim.name}'s end no block is OWNED or HELD")
        run.report.check(
            run.host or seconds <= SLACK * right["seconds"][0],
            f"the answer takes at most {SLACK} times as long as computing: {seconds:.3f} s",
        )


def freed(run: Run) -> bool:
    """Whether no process owns or holds a block, within FREE_S."""
    deadline = time.monotonic() + FREE_S
    while True:
        found = region.figures(region_of(run))
        if found["owned"] == found["held"] == 0:
            return True
        if time.monotonic() > deadline:
            run.report.note(f"region: {found}")
            return False
        time.sleep(0.02)


# ---- prefixes, and gpuwmd -----------------------------------------------------------------------


def prefix(run: Run, decode: Engine, prefill: Engine, stranger: Engine) -> None:
    """An engine that never saw the prompt, whose hashes start from another seed, and that has to
    compute another end of it."""
    prompt = [[20, 4000]]
    ask(run, prefill, "put", [*prompt, [21, SUFFIX]], tokens=1)
    found = ask(run, stranger, "another end", [*prompt, [22, SUFFIX]])
    hit(run, found, prompt[0][1] + 1, "a prefix that another engine put")
    right = ask(run, decode, "reference", [*prompt, [22, SUFFIX]])
    equal(run, right, found, "with another end")
    # An engine that has the same prefix in its own cache runs the same kernels.
    ask(run, prefill, "own prefix", [*prompt, [21, SUFFIX]], tokens=1)
    own = ask(run, prefill, "own cache", [*prompt, [22, SUFFIX]], reset=False)
    equal(run, own, found, "as an engine with the prefix in its own cache")


def without_gpuwmd(run: Run, decode: Engine, prefill: Engine) -> None:
    prompt = [[30, 4000]]
    ask(run, prefill, "put", prompt, tokens=1)
    right = ask(run, decode, "got", prompt)
    hit(run, right, 4000, "before gpuwmd is killed")
    with run.service.away():
        found = ask(run, decode, "without gpuwmd", prompt)
        hit(run, found, 4000, "without gpuwmd")
        equal(run, right, found, "without gpuwmd")
    found = ask(run, decode, "after gpuwmd", prompt)
    hit(run, found, 4000, "with the next gpuwmd")
    equal(run, right, found, "with the next gpuwmd")
    ask(run, prefill, "put", [[31, 4000]], tokens=1)
    hit(run, ask(run, decode, "got", [[31, 4000]]), 4000, "put and got with the next gpuwmd")
    run.report.check(freed(run), "no block is OWNED or HELD")


# ---- a swap -------------------------------------------------------------------------------------


def half(found: dict[str, Any]) -> set[int]:
    """Which of the two versions computed the tokens."""
    middle = int(MODELS["half-1"][1]["vocab_size"]) // 2
    return {1 if token < middle else 2 for token in found["tokens"]}


def swapped(run: Run) -> None:
    """Two versions of one layout, whose tokens tell which of them computed each."""
    prompt = [[40, 4000]]
    first, second = ({"ref": ref} for ref in VERSIONS)
    prefill = run.engine(
        "swap-prefill", "half-1", first, **STEPS, **connector(run, "producer", region="kvswap")
    )
    decode = run.engine(
        "swap-decode", "half-1", first, **STEPS, **connector(run, "consumer", region="kvswap")
    )
    # One more than the spares that are made at once.
    other = run.engine("swap-other", "half-2", second, fresh=True, **STEPS)
    started(prefill, decode, other)
    ask(run, prefill, "put", prompt, tokens=1)
    old = ask(run, decode, "got", prompt)
    hit(run, old, 4000, "before the swap")
    right = ask(run, other, "computed", prompt)
    run.report.check(
        half(old) == {1} and half(right) == {2}, "each version's tokens are of its half"
    )
    switch(run, decode, VERSIONS[1])
    found = ask(run, decode, "on the new version", prompt)
    missed(run, found, "after the swap")
    equal(run, right, found, "after the swap, and the new version's own engine")
    switch(run, decode, VERSIONS[0])
    found = ask(run, decode, "back", prompt)
    hit(run, found, 4000, "back on the old version")
    equal(run, old, found, "back on the old version")


def switch(run: Run, engine: Engine, ref: str) -> None:
    count = engine.log.count("switched") + 1
    engine.ask(f"switch {ref}")
    processes.told([engine], "switched", 60.0, count)
    found = engine.log.event("switched") or {}
    if not found["moved"]:
        raise Failed(f"{engine.name} did not move to {ref}: {found}")
    run.report.record("switched", engine=engine.name, ref=ref, **found)
