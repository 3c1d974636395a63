"""One vLLM engine: starts, generates fixed batches, and stays until its stdin ends.

It imports torch and vLLM, and then takes its options, the JSON of Options, from the first line of
its stdin. It prints what it measures as lines "@ JSON" among vLLM's log:
    ready       it waits for its options
    started     seconds of each step, KV cache, GPU memory of torch
    answered    a SHA-256 per batch of tokens and log-probabilities, and the seconds they took
    updated     seconds of each step of a weight transfer, the most bytes that torch added for it
    generated   tokens and log-probabilities of one prompt, seconds, tokens that came from a cache
    switched    what gpuwm.vllm.switch says
and after each further line: "again" answers once more, "generate QUESTION" (asking.py) answers one
prompt, "switch REF" moves the engine to another version, "sleep LEVEL", "wake" and "occupy" change
its state, "update REF" and "receive FILE" give it other weights, by gpuwm or by handles of vLLM's
IPC. With the option `stands_by` it answers only after its first "occupy", with `on_request` it
answers nothing by itself. The file `answers` has the tokens, and the log-probabilities as
hexadecimal numbers."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import pathlib
import pickle
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import asking

EVENT = "@ "
ANSWER_TOKENS = 24
LOGPROBS = 5  # for each token of an answer, besides the one that was taken
OCCUPY_S = "10"  # for the memory of an engine that was killed
EMPTY_S = 10.0  # until what was stored asynchronously is stored
VOCABULARY = 1000  # prompts take tokens below this; every model here has more


@dataclass
class Options:
    """`llm`: keyword arguments of vllm.LLM. `lora`: folders of adapters; each batch is answered
    without and with each. `streams`, `tokens`, `http`: of serving.py. `training`: of trainer.py.
    `stands_by`: its KV cache has no memory yet. `on_request`: it answers no batch by itself."""

    llm: dict[str, Any]
    answers: str
    lora: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    streams: int = 0
    tokens: int = 0
    http: bool = False
    stands_by: bool = False
    on_request: bool = False
    training: list[str] = field(default_factory=list)


def tell(event: str, **what: Any) -> None:
    # A progress bar may have left its line unfinished.
    print("\n" + EVENT + json.dumps({"event": event, **what}), flush=True)


# ---- batches ------------------------------------------------------------------------------------


def prompt(number: int, length: int) -> dict[str, list[int]]:
    return {
        "prompt_token_ids": [3 + (7 * number + 11 * at) % (VOCABULARY - 3) for at in range(length)]
    }


def batches() -> dict[str, tuple[list[dict[str, list[int]]], dict[str, Any]]]:
    """Prompts and sampling parameters by name: equal lengths, mixed ones (a prefill is beside
    decodes), and sampled tokens, which also depend on the low bits of each logit."""
    mixed = (1, 3, 16, 17, 64, 129, 300, 511)
    sampled = {"temperature": 1.0, "top_p": 0.9, "top_k": 50, "seed": 7}
    return {
        "equal": ([prompt(n, 17) for n in range(4)], {"temperature": 0.0}),
        "mixed": ([prompt(10 + n, length) for n, length in enumerate(mixed)], {"temperature": 0.0}),
        "sampled": ([prompt(30 + n, 33) for n in range(4)], sampled),
    }


Answer = list[list[Any]]  # for each prompt: the tokens, and for each token {token: log-probability}


def answer(
    llm: Any, prompts: list[dict[str, list[int]]], sampling: dict[str, Any], lora: Any
) -> Answer:
    from vllm import SamplingParams

    parameters = SamplingParams(
        max_tokens=ANSWER_TOKENS, logprobs=LOGPROBS, ignore_eos=True, detokenize=False, **sampling
    )
    # A prompt that is found in the prefix cache runs other kernels than one that is not.
    llm.reset_prefix_cache()
    outputs = llm.generate(prompts, parameters, use_tqdm=False, lora_request=lora)
    found = []
    for output in outputs:
        completion = output.outputs[0]
        likely = [
            {str(token): float(entry.logprob).hex() for token, entry in sorted(position.items())}
            for position in completion.logprobs
        ]
        found.append([list(completion.token_ids), likely])
    return found


def digest(answers: Answer) -> str:
    return hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest()


def answer_all(llm: Any, options: Options) -> None:
    begin = time.perf_counter()
    found: dict[str, Answer] = {}
    first: float | None = None
    for adapter, lora in adapters(options.lora):
        for name, (prompts, sampling) in batches().items():
            found[f"{name}{adapter}"] = answer(llm, prompts, sampling, lora)
            first = first or time.perf_counter() - begin
    pathlib.Path(options.answers).write_text(json.dumps(found))
    tell(
        "answered",
        hashes={name: digest(answers) for name, answers in found.items()},
        seconds={"first batch": first, "all batches": time.perf_counter() - begin},
    )


def generate(llm: Any, asked: asking.Question) -> None:
    """One prompt, as often as is asked, greedily. Log-probabilities only of longer answers: a first
    token is timed."""
    from vllm import SamplingParams

    long = asked.tokens > 1
    parameters = SamplingParams(
        temperature=0.0,
        max_tokens=asked.tokens,
        logprobs=2 if long else None,
        ignore_eos=True,
        detokenize=False,
    )
    prompts = [{"prompt_token_ids": asking.token_ids(asked.prompt)}]
    found: dict[str, Any] = {"seconds": [], "cached": []}
    for _ in range(asked.times):
        if asked.reset:
            empty_prefix_cache(llm)
        begin = time.perf_counter()
        output = llm.generate(prompts, parameters, use_tqdm=False)[0]
        found["seconds"].append(time.perf_counter() - begin)
        found["cached"].append(output.num_cached_tokens)
        completion = output.outputs[0]
        found["tokens"] = list(completion.token_ids)
        found["likely"] = [
            {str(token): float(entry.logprob).hex() for token, entry in sorted(position.items())}
            for position in completion.logprobs or ()
        ]
    tell("generated", name=asked.name, **found)


def empty_prefix_cache(llm: Any) -> None:
    """A connector may still copy from blocks of requests that have ended: steps let it end."""
    from vllm import SamplingParams

    deadline = time.monotonic() + EMPTY_S
    one = SamplingParams(max_tokens=1, detokenize=False)
    while not llm.reset_prefix_cache():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the prefix cache has blocks in use after {EMPTY_S:.0f} s")
        llm.generate([{"prompt_token_ids": [asking.FIRST] * 3}], one, use_tqdm=False)


def switch(llm: Any, ref: str) -> None:
    import gpuwm.vllm

    found = gpuwm.vllm.switch(llm, ref)
    tell("switched", moved=found.moved, version=found.version, seconds=found.seconds)


def adapters(folders: list[str]) -> list[tuple[str, Any]]:
    """A suffix of the batch's name and the request: without an adapter, then with each."""
    found: list[tuple[str, Any]] = [("", None)]
    if folders:
        from vllm.lora.request import LoRARequest

        for number, folder in enumerate(folders, 1):
            name = pathlib.Path(folder).name
            found.append((f"+{name}", LoRARequest(name, number, folder)))
    return found


# ---- the engine ---------------------------------------------------------------------------------


def memory() -> dict[str, int]:
    """Of torch in this process, in MiB; empty with several ranks, which are other processes."""
    import torch

    if not torch.cuda.is_initialized():
        return {}
    return {
        "torch allocated": torch.cuda.memory_allocated() >> 20,
        "torch reserved": torch.cuda.memory_reserved() >> 20,
    }


def kv_cache(llm: Any) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config
    cache = config.cache_config
    return {"blocks": cache.num_gpu_blocks, "block size": cache.block_size}


def imports() -> dict[str, float]:
    """Seconds of each. Nothing that vLLM reads from the environment later is read here."""
    begin = time.perf_counter()
    importlib.import_module("torch")
    torch_s = time.perf_counter() - begin
    begin = time.perf_counter()
    _ = importlib.import_module("vllm").LLM  # which imports the rest
    return {"import torch": torch_s, "import vllm": time.perf_counter() - begin}


def start(options: Options, times: dict[str, float]) -> Any:
    from vllm import LLM

    if options.llm.get("weight_transfer_config") == {"backend": "ipc"}:
        from trainer import need_no_ray

        need_no_ray()

    begin = time.perf_counter()
    llm = LLM(**options.llm)
    times["LLM()"] = time.perf_counter() - begin
    config = llm.llm_engine.vllm_config
    tell(
        "started",
        seconds=times,
        memory=memory(),
        kv=kv_cache(llm),
        runner="V2" if config.use_v2_model_runner else "V1",
        worker=config.parallel_config.worker_cls,
    )
    return llm


def obey(llm: Any, options: Options, line: str) -> None:
    words = line.split()
    begin = time.perf_counter()
    if words == ["again"]:
        answer_all(llm, options)
        return
    if asked := asking.question(line):
        generate(llm, asked)
        return
    if words[0] in ("update", "receive"):
        transfer(llm, words[0], words[1])
        return
    if words[0] == "sleep":
        llm.sleep(level=int(words[1]))
    elif words == ["wake"]:
        llm.wake_up()
    elif words[0] == "switch":
        switch(llm, words[1])
        return
    elif words == ["occupy"]:
        found = llm.collective_rpc("gpuwm_occupy", args=(OCCUPY_S,))
        if errors := [rank for rank in found if "error" in rank]:
            raise RuntimeError(f"gpuwm_occupy: {errors[0]}")
    else:
        raise ValueError(f"engine.py does not know {line!r}")
    tell(words[0], seconds={words[0]: time.perf_counter() - begin}, memory=memory())


def transfer(llm: Any, how: str, what: str) -> None:
    """vLLM's weight transfer. No request is in flight, and each answer empties the prefix cache."""
    import torch

    if how == "update":
        info: dict[str, Any] = {"ref": what}
    else:
        info = pickle.loads(pathlib.Path(what).read_bytes())
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times: dict[str, float] = {}
    for step, call in (
        ("start", llm.start_weight_update),
        ("prepare", functools.partial(llm.update_weights, {"update_info": info})),
        ("finish", llm.finish_weight_update),
    ):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times[step] = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() - before
    tell("updated", seconds=times, memory=memory(), **{"peak bytes": peak})


def take_options() -> Options:
    """Told by whoever started this process."""
    tell("ready")
    options = Options(**json.loads(sys.stdin.readline()))
    os.environ.update(options.environment)
    return options


def main() -> None:
    times = imports()
    options = take_options()
    llm = start(options, times)
    if options.stands_by:
        obey(llm, options, sys.stdin.readline())
    if not options.on_request:
        answer_all(llm, options)
    for line in sys.stdin:
        obey(llm, options, line)
    tell("ending")
    with contextlib.suppress(AttributeError):
        llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
