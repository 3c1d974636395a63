"""Stands in for engine.py where there is no GPU and no vLLM, to try the driver: the same options,
events and log lines. What it "loads" is a few KiB on host memory, which it shares through gpuwm as
load format gpuwm does.

$FAKE_FAULT makes it go wrong: "answers" (those of gpuwm's engines differ in one bit), "slow" (it
never answers), "dies" (before it answers), "torn" (a wake brings other weights)."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys
import time
from typing import Any

import asking
import fake_kv
from engine import Options, take_options, tell

FILES_S, PUBLISH_S = 0.3, 0.1  # so long each step takes: a signal comes in between
KV_TOKENS = 123456
CLAIM_S = 30.0
MAPPINGS: list[Any] = []  # that this engine is on


def say(line: str) -> None:
    print(f"INFO 11-22 21:00:00 [fake.py:1] {line}", flush=True)


def key(llm: dict[str, Any]) -> dict[str, str]:
    """What changes the weights of a real engine."""
    return {
        "model": pathlib.Path(llm["model"]).name,
        "quantization": str(llm.get("quantization", "none")),
        "tp": str(llm.get("tensor_parallel_size", 1)),
        "experts": str(llm.get("enable_expert_parallel", False)),
        "lora": "on" if llm.get("enable_lora") else "off",
    }


def made(llm: dict[str, Any]) -> Any:
    """What the weights of a real engine would be."""
    import numpy

    seed = hashlib.sha256(json.dumps(key(llm)).encode()).digest()
    return numpy.frombuffer(seed * 64, numpy.uint8).copy()


def weights(llm: dict[str, Any]) -> Any:
    say("Loading model from scratch...")
    time.sleep(FILES_S)
    say(f"Loading weights took {FILES_S:.2f} seconds")
    return {"weight": made(llm)}


def build(llm: dict[str, Any], extra: dict[str, Any], name: str, client: Any) -> Any:
    import gpuwm

    made = weights(llm)
    time.sleep(PUBLISH_S)
    gpuwm.publish(made, name, key=key(llm), device="host", bind=False, client=client)
    mapping = gpuwm.attach(name, client=client)
    say(
        f"gpuwm: built {mapping.version} ({mapping.version.id}), since it was not there: "
        f"0.00 GB in 1 tensors; loader {extra.get('inner', 'auto')} {FILES_S:.2f} s, "
        f"publish {PUBLISH_S:.2f} s. Other engines attach to it"
    )
    return mapping


def shared(llm: dict[str, Any]) -> Any:
    """As load format gpuwm: a mapping. What it raises ends the engine."""
    import gpuwm
    from gpuwm import _election
    from gpuwm.engines import raw

    extra = llm["model_loader_extra_config"]
    name, mode = extra["ref"], extra.get("mode", "auto")
    client = gpuwm.connect(extra.get("socket"))
    say("Loading model from scratch...")
    if mode == "raw":
        share = raw.Share(0, llm.get("tensor_parallel_size", 1))
        raw.find(name, lambda: share, None, client)
        gpuwm.attach(name, client=client).drop()
        digest = hashlib.sha256(json.dumps(key(llm)).encode()).hexdigest()
        name = f"{key(llm)['model']}@vllm-{digest[:24]}"
    begin = time.perf_counter()
    if mode == "load":
        found = gpuwm.attach(name, key=key(llm), client=client)
    else:
        claimed = _election.claim(client, name, "host", CLAIM_S, None)
        if claimed is None:
            return build(llm, extra, name, client)
        found = claimed
    seconds = time.perf_counter() - begin
    say(
        f"gpuwm: attached {found.version} ({found.version.id}), 0.00 GB, made by vLLM 0.25.1, "
        f"process 1, from {llm['model']}, in {seconds:.3f} s: build 0.001 s, "
        f"attach {seconds:.3f} s, install and post-process 0.001 s"
    )
    return found


def load(llm: dict[str, Any]) -> Any:
    """Bytes that stand for the weights."""
    begin = time.perf_counter()
    if llm.get("load_format") != "gpuwm":
        found: Any = weights(llm)["weight"]
    else:
        try:
            mapping = shared(llm)
            MAPPINGS.append(mapping)
            found = mapping.numpy("weight")
        except Exception as error:
            if llm["model_loader_extra_config"].get("fallback") != "auto":
                print(f"gpuwm.{type(error).__name__}: gpuwm: {error}", flush=True)
                raise
            say(f'gpuwm: loaded into memory of this engine alone ("fallback": "auto"): {error}')
            found = weights(llm)["weight"]
    say(f"Model loading took 0.0 GiB and {time.perf_counter() - begin:.6f} seconds")
    return found


def answer(options: Options, held: Any) -> None:
    fault = os.environ.get("FAKE_FAULT") if options.llm.get("load_format") == "gpuwm" else None
    if fault == "slow":
        time.sleep(3600)
    if fault == "dies":
        sys.exit("RuntimeError: CUDA error: an illegal memory access was encountered")
    found, hashes = {}, {}
    for adapter in ("", *(f"+{pathlib.Path(folder).name}" for folder in options.lora)):
        for name in ("equal", "mixed", "sampled"):
            bits = hashlib.sha256(bytes(held) + adapter.encode() + name.encode()).digest()
            likely = (bits[0] / 7 + (2**-40 if fault == "answers" else 0)).hex()
            found[name + adapter] = [[[bits[1], bits[2]], [{"1": likely}, {"2": "0x1p-1"}]]]
            hashes[name + adapter] = hashlib.sha256(
                json.dumps(found[name + adapter]).encode()
            ).hexdigest()
    pathlib.Path(options.answers).write_text(json.dumps(found))
    tell("answered", hashes=hashes, seconds={"first batch": 0.01, "all batches": 0.02})


def update(ref: str) -> dict[str, float]:
    """As vLLM's weight transfer by gpuwm, on the mapping that was loaded. $FAKE_FAULT "stale": it
    does nothing."""
    import gpuwm

    begin = time.perf_counter()
    other = gpuwm.attach(ref)
    prepared = time.perf_counter()
    if os.environ.get("FAKE_FAULT") != "stale":
        MAPPINGS[0].exchange(other)
    other.drop()
    say("gpuwm: weight transfer: refreshed 0 bytes of private copies")
    return {
        "start": 0.0,
        "prepare": prepared - begin,
        "finish": time.perf_counter() - prepared,
    }


def switch(ref: str) -> None:
    """As gpuwm.vllm.switch, on the mapping that was loaded."""
    import gpuwm

    other = gpuwm.attach(ref)
    MAPPINGS[0].exchange(other)
    other.drop()
    moved = os.environ.get("FAKE_FAULT") != "still"
    tell("switched", moved=moved, version=ref, seconds={"exchange": 0.01})


def sleep(word: str) -> None:
    """As vLLM's sleep mode with parked weights."""
    for mapping in MAPPINGS:
        if word == "sleep":
            mapping.park()
        else:
            mapping.unpark(CLAIM_S)


def half(held: Any) -> int:
    """Which half of the vocabulary the tokens are of: fake_serving.py does the same."""
    second = made({"model": "half-2", "load_format": "gpuwm"})
    return 2 if bytes(held) == bytes(second) else 1


def main() -> None:
    options = take_options()
    held = load(options.llm)
    prompts = fake_kv.Prompts(options.llm)
    say(f"GPU KV cache size: {KV_TOKENS:,} tokens")
    tell(
        "started",
        seconds={"LLM()": FILES_S},
        memory={},
        kv={"blocks": 1, "block size": 16},
        runner="V2",
        worker="",
    )
    if options.stands_by:
        word = sys.stdin.readline().split()[0]
        tell(word, seconds={word: 0.01}, memory={})
    if not options.on_request:
        answer(options, held)
    for line in sys.stdin:
        asked = asking.question(line)
        if asked is not None:
            prompts.answer(asked, bytes(held), half(held))
        elif line.strip() == "again":
            answer(options, held)
        elif line.startswith("switch "):
            switch(line.split()[1])
        elif line.startswith("update "):
            tell("updated", seconds=update(line.split()[1]), memory={}, **{"peak bytes": 0})
        elif line.startswith("receive "):
            held = pathlib.Path(line.split()[1]).read_bytes()
            seconds = {"start": 0.0, "prepare": 0.01, "finish": 0.01}
            tell("updated", seconds=seconds, memory={}, **{"peak bytes": len(held)})
        else:
            word = line.split()[0]
            if word in ("sleep", "wake"):
                sleep(word)
                fault = os.environ.get("FAKE_FAULT") == "torn" and word == "wake"
                held = held if not fault else made({"model": "another"})
            tell(word, seconds={word: 0.01}, memory={})


if __name__ == "__main__":
    main()
