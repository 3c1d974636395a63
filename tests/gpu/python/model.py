"""A transformer of more than a billion parameters, made and saved by transformers, on shared
weights: what it takes, what it answers, how many have room, how soon it answers.

    model.py [--device cuda:0|host] [--weights FOLDER] [--small]"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from typing import Any

import common
import gpuwm
from common import Watch, Worker, check, row, tell

REF = "llm@v1"
ROUNDS = 5
WORKERS = (1, 2, 4, 8)
PARAMETERS = 1_000_000_000
ALLOCATION = 512  # torch's allocator rounds up to it


def config(small: bool) -> Any:
    from transformers import LlamaConfig

    size: dict[str, int] = {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    if small:
        size |= {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256}
        size |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaConfig(**size, tie_word_embeddings=True)


def make(weights: str, small: bool, device: str) -> pathlib.Path:
    """By the model's own random initialisation, and saved in shards."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = pathlib.Path(weights, "llm-small" if small else "llm")
    if (folder / "complete").exists():
        return folder
    torch.manual_seed(7)
    with torch.device(common.torch_device(device)):
        model = AutoModelForCausalLM.from_config(config(small), dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="100KB" if small else "500MB")
    (folder / "complete").touch()
    return folder


def inputs(device: str) -> Any:
    import torch

    generator = torch.Generator().manual_seed(3)
    return torch.randint(3, 500, (2, 64), generator=generator).to(common.torch_device(device))


def logits(model: Any, device: str) -> Any:
    import torch

    with torch.inference_mode():
        return model(inputs(device), use_cache=False).logits


def ordinary(folder: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, device_map=common.torch_device(device))


# ---- one worker ---------------------------------------------------------------------------------


def worker(kind: str, folder: str, device: str) -> None:
    """kind: "share", "copy" (from_pretrained), or "bare": a context and one product of matrices."""
    watch = Watch()
    import torch
    import transformers
    from transformers.models.llama import modeling_llama  # noqa: F401

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    on = common.torch_device(device)
    watch.done("import")
    torch.zeros(1, device=on)
    common.synchronize(device)
    watch.done("context")
    if kind == "bare":
        side = torch.ones(2048, 2048, device=on, dtype=torch.bfloat16)
        answer = side @ side
        del side
    else:
        if kind == "share":
            mapping = gpuwm.attach(REF, device=common.gpuwm_device(device))
            watch.done("attach")
            model = gpuwm.transformers.from_pretrained(mapping)
            watch.done("bind")
        else:
            model = ordinary(folder, device)
            watch.done("from_pretrained")
        answer = logits(model, device)
    common.synchronize(device)
    watch.done("forward")
    content = mapping.version.content if kind == "share" else None
    told = {"sum": common.digest(answer), "anonymous": common.anonymous_mib()}
    tell(**told, times=watch.times, content=content)
    sys.stdin.read()


# ---- the parts ----------------------------------------------------------------------------------


def growth(folder: pathlib.Path, device: str) -> None:
    """In this process: what binding takes of torch's memory, and what the model answers."""
    import torch

    print("what binding takes, and bit-equal answers", flush=True)
    on = common.torch_device(device)
    torch.zeros(1, device=on)
    allocated = torch.cuda.memory_allocated if device != "host" else lambda: 0
    before = allocated()
    mapping = gpuwm.attach(REF, device=common.gpuwm_device(device))
    model = gpuwm.transformers.from_pretrained(mapping)
    common.synchronize(device)
    grown = allocated() - before
    result = mapping.check(model)
    shared = set(result.shared)
    parameters = sum(p.numel() for p in model.parameters())
    own = {n: t for n, t in [*model.named_parameters(), *model.named_buffers()] if n not in shared}
    for name, tensor in own.items():
        row(f"own: {name}, {list(tensor.shape)}, {tensor.dtype}", tensor.nbytes, "bytes")
    bound = sum(-(-t.nbytes // ALLOCATION) * ALLOCATION for t in own.values())
    row("parameters", parameters)
    row("shared: tensors, bytes", len(shared), mapping.nbytes)
    row("growth of torch.cuda.memory_allocated(), bytes; at most", grown, bound)
    check(grown <= bound, "growth is at most what is listed as the model's own")
    check(result.lost == (), "nothing lost its sharing")
    check(not any(name in own for name, _ in model.named_parameters()), "all parameters are shared")
    if folder.name == "llm":
        check(parameters >= PARAMETERS, f"at least {PARAMETERS:,} parameters")

    control = ordinary(str(folder), device)
    for name, buffer in control.named_buffers():
        check(
            torch.equal(buffer, model.get_buffer(name)), f"buffer {name} as from_pretrained has it"
        )
    theirs, ours = logits(control, device), logits(model, device)
    check(torch.equal(theirs, ours), "logits bit-equal to from_pretrained's")
    options = {"max_new_tokens": 16, "do_sample": False}
    ids = inputs(device)[:1]
    same = torch.equal(control.generate(ids, **options), model.generate(ids, **options))
    check(same, "greedy generation as from_pretrained's")
    began = time.monotonic()
    mapping.verify()  # raises Damaged if this process does not read what the version's digests say
    row("tensors verified from here, s", len(mapping), time.monotonic() - began)
    del control, model, result, own
    mapping.drop()


def crowd(folder: pathlib.Path, device: str, small: bool) -> None:
    print(
        "N workers that have answered (MiB: the GPU's, or on host their own together)", flush=True
    )
    row("N", "bare", "share", "copy", "sums")
    tables: dict[str, dict[int, float]] = {"bare": {}, "share": {}, "copy": {}}
    counts = (1, 2) if small else WORKERS
    sums: set[str] = set()
    contents: set[str] = set()
    for count in counts:
        for kind, table in tables.items():
            before = common.settled_mib(device)
            with common.workers(count, kind, str(folder), device) as started:
                answers = [each.told() for each in started]
                bad = [a["error"] for a in answers if "error" in a]
                check(not bad, f"{count} of {kind} answered {bad}") if bad else None
                anonymous = sum(a.get("anonymous", 0) for a in answers)
                table[count] = anonymous if device == "host" else common.device_mib(device) - before
                if kind == "share":
                    contents |= {a.get("content", "none") for a in answers}
                if kind != "bare":
                    sums |= {a.get("sum", "none") for a in answers}
        row(str(count), *(round(table[count]) for table in tables.values()), len(sums))
    weights = sum(f.stat().st_size for f in folder.glob("*.safetensors")) / 2**20
    low, high = counts[0], counts[-1]
    each = {k: (t[high] - t[low]) / (high - low) for k, t in tables.items()}
    row("a further worker takes, MiB; the weights", *(round(v) for v in each.values()))
    row("the weights, MiB", round(weights))
    check(len(sums) == 1, "all answers are the same")
    check(len(contents) == 1, "all workers name the same content digest")
    if not small:
        more = each["copy"] - each["share"]
        check(more > 0.9 * weights, "a copy takes the weights once more each")
        over = each["share"] - each["bare"]
        check(over < 0.1 * weights, f"sharing takes contexts only (and {over:.0f} MiB of kernels)")


def starts(folder: pathlib.Path, device: str, rounds: int) -> None:
    """Interleaved, files in the page cache."""
    print(f"from a process's start to its first logits, s, medians of {rounds}", flush=True)
    phases: dict[str, list[dict[str, float]]] = {"share": [], "copy": []}
    for _ in range(rounds):
        for kind, found in phases.items():
            started = Worker(kind, str(folder), device)
            answer = started.told()
            started.end()
            if "error" in answer:
                check(False, f"{kind}: {answer['error']}")
                return
            found.append(answer["times"])
    totals = {}
    for kind, found in phases.items():
        for phase in found[0]:
            row(f"{kind}: {phase}", common.median([times[phase] for times in found]))
        totals[kind] = common.median([sum(times.values()) for times in found])
        row(f"{kind}: in all", totals[kind])
    row("share beside from_pretrained", totals["share"] / totals["copy"])


def main(options: argparse.Namespace) -> None:
    folder = make(options.weights, options.small, options.device)
    common.load(folder, REF, options.device)
    growth(folder, options.device)
    starts(folder, options.device, 2 if options.small else ROUNDS)
    # What this process has on the GPU counts before and after alike.
    crowd(folder, options.device, options.small)
    common.retire(REF)


if __name__ == "__main__":
    common.run(main, worker)
