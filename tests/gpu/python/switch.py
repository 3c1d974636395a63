"""Versions that change under a captured CUDA graph, and under workers that answer meanwhile.

switch.py [--device cuda:0|host] [--weights FOLDER] [--small]"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

import common
import gpuwm
from common import Worker, check, row, tell

MODEL = "swapped"
TAGS = ("v1", "v2")
SWAPS, WORKERS = 100, 8
SWAP_S = 10  # until every worker has answered from a new version


def size(small: bool) -> tuple[int, int]:
    return (64, 2) if small else (1024, 8)


def expected(device: str, width: int, layers: int) -> dict[str, Any]:
    """What an ordinary model with each version's values answers."""
    import torch

    answers = {}
    for tag in TAGS:
        copies = gpuwm.attach(f"{MODEL}@{tag}", device=common.gpuwm_device(device), copy=True)
        model = common.decoder(width, layers).to(common.torch_device(device))
        model.load_state_dict(copies.state_dict())
        with torch.inference_mode():
            answers[tag] = model(common.inputs(device)).clone()
    # A second attachment, until it is unmapped, would be in the way of a switch.
    gone = common.eventually(lambda: not any(common.leases(f"{MODEL}@{tag}") for tag in TAGS), 20)
    assert gone, "what was copied is still leased"
    return answers


# ---- under a captured graph ---------------------------------------------------------------------


def graph(device: str, width: int, layers: int) -> None:
    import torch

    answers = expected(device, width, layers)
    mapping = gpuwm.attach(f"{MODEL}@v1", device=common.gpuwm_device(device))
    model = common.bound_decoder(mapping, width, layers)
    addresses = {name: p.data_ptr() for name, p in model.named_parameters()}
    ids = common.inputs(device)

    def eager() -> Any:
        with torch.no_grad():
            return model(ids)

    replay = eager
    if device != "host":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                eager()
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            static = eager()

        def replay() -> Any:
            captured.replay()
            return static

    print(f"switches under a {'captured graph' if device != 'host' else 'model'}", flush=True)
    times = []
    for turn in range(20):
        tag = TAGS[(turn + 1) % 2]
        common.synchronize(device)
        begin = time.perf_counter()
        mapping.switch(f"{MODEL}@{tag}")
        times.append((time.perf_counter() - begin) * 1e3)
        answer = replay()
        common.synchronize(device)
        if not torch.equal(answer, answers[tag]):
            off = (answer - answers[tag]).abs().max().item()
            other = torch.equal(answer, answers[TAGS[turn % 2]])
            check(False, f"switch {turn} gives {tag}'s logits: {off} off; the other's: {other}")
            break
    else:
        check(
            True, "20 switches: each gives its version's logits, bit-equal to an ordinary model's"
        )
    check(
        all(p.data_ptr() == addresses[name] for name, p in model.named_parameters()),
        "every address is as it was",
    )
    row("switch and refresh, ms: median, max", common.median(times), max(times))
    differ = not torch.equal(*answers.values())
    check(differ, "the two versions answer differently")


# ---- under load ---------------------------------------------------------------------------------


def worker(device: str, width: str, layers: str) -> None:
    """Answers on and on, and switches when an event says so. Told "end": what it answered."""
    import torch

    mapping = gpuwm.attach(MODEL, device=common.gpuwm_device(device))
    model = common.bound_decoder(mapping, int(width), int(layers))
    ids = common.inputs(device)
    moved, ended = threading.Event(), threading.Event()
    events = gpuwm.connect().events().open()

    def follow() -> None:
        for event in events:
            if event.kind == "swapped" and event.model == MODEL:
                moved.set()

    threading.Thread(target=follow, daemon=True).start()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    found: dict[str, int] = {}
    switches = 0
    tell(ready=str(mapping.version))
    while not ended.is_set():
        if moved.is_set():
            moved.clear()
            mapping.switch(MODEL)
            switches += 1
        with torch.inference_mode():
            answer = common.digest(model(ids))
        found[answer] = found.get(answer, 0) + 1
    moved.clear()
    version = mapping.switch(MODEL)
    with torch.inference_mode():
        last = common.digest(model(ids))
    tell(answers=found, switches=switches, version=version.tag, last=last)


def load(device: str, width: int, layers: int, swaps: int, count: int) -> None:
    digests = {tag: common.digest(a) for tag, a in expected(device, width, layers).items()}
    print(f"{swaps} swaps under {count} workers that answer", flush=True)
    client = common.admin()
    client.swap(MODEL, "v1")
    started = [Worker(device, str(width), str(layers)) for _ in range(count)]
    for each in started:
        check("ready" in (told := each.told()), f"a worker started: {told}")
    times = []
    for turn in range(swaps):
        begin = time.perf_counter()
        client.swap(MODEL, TAGS[(turn + 1) % 2])
        times.append((time.perf_counter() - begin) * 1e3)
        time.sleep(0.05)  # the load that it is under, not a wait for it
    for each in started:
        each.say("end")
    told = [each.told() for each in started]
    for each in started:
        each.end()
    wrong = sum(
        n for t in told for d, n in t.get("answers", {}).items() if d not in digests.values()
    )
    row(
        "answers: v1's, v2's, others",
        *(sum(t.get("answers", {}).get(digests[tag], 0) for t in told) for tag in TAGS),
        wrong,
    )
    row(
        "switches of a worker: least, most",
        *(f(t.get("switches", 0) for t in told) for f in (min, max)),
    )
    row("a swap of the alias, ms: median, max", common.median(times), max(times))
    check(
        not any("error" in t for t in told),
        f"every worker ended well {[t for t in told if 'error' in t]}",
    )
    check(wrong == 0, "every answer is v1's or v2's")
    check(all(len(t.get("answers", {})) == 2 for t in told), "every worker answered from both")
    last = TAGS[swaps % 2]
    check(all(t.get("last") == digests[last] for t in told), f"all are at {last} in the end")


def main(options: argparse.Namespace) -> None:
    width, layers = size(options.small)
    for seed, tag in enumerate(TAGS):
        folder = common.decoder_folder(options.weights, "decoder", width, layers, seed)
        common.load(folder, f"{MODEL}@{tag}", options.device)
    graph(options.device, width, layers)
    swaps, count = (20, 2) if options.small else (SWAPS, WORKERS)
    load(options.device, width, layers, swaps, count)
    for tag in TAGS:
        common.retire(f"{MODEL}@{tag}")


if __name__ == "__main__":
    common.run(main, worker)
