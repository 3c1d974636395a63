"""One engine of SGLang, which answers a few prompts: engine.py OPTIONS.json ANSWER.json

OPTIONS are those of `sglang.Engine`, and "update": a checkpoint with which the engine is asked to
update its weights. ANSWER gets the seconds of each step, tokens and log-probabilities, or the
error. The engine serves until standard input ends. SGLang starts further processes, which import
this file too: the stand-ins below are for all of them."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
import traceback
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "python"))
from tests_sglang import stubs

# $GPUWM_TEST_CPU: SGLang on a CPU without any kernel. Its answers are no model's then, since
# stand-ins write the KV cache's tables, but they depend on the weights.
CPU = "GPUWM_TEST_CPU" in os.environ
if CPU:
    os.environ.update(SGLANG_USE_CPU_ENGINE="1", TORCHDYNAMO_DISABLE="1")
    stubs.install()
# Neither package was carried, and with the options below SGLang calls neither. sgl_kernel has norms
# of its own, which it takes if flashinfer's can't be imported.
stubs.add_finder(("flashinfer", "IPython"), without=("flashinfer.norm",))

PROMPTS, PROMPT_TOKENS, ANSWER_TOKENS = 4, 64, 32
FIRST_TOKEN, TOKENS = 100, 1800  # below the vocabulary of the smallest model
CALM: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_radix_cache": True,  # no answer depends on another
    "random_seed": 1,
    "mem_fraction_static": 0.5,
    "log_level": "info",
}
if CPU:
    CALM |= {"device": "cpu", "dtype": "bfloat16", "attention_backend": "torch_native"}
    CALM |= {"disable_cuda_graph": True, "max_total_tokens": 4096, "max_running_requests": 4}
SAMPLING = {"temperature": 0.0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True}


def prompts() -> list[list[int]]:
    """The same in each run."""
    return [
        [FIRST_TOKEN + (97 * row + 31 * at * at + 7 * at) % TOKENS for at in range(PROMPT_TOKENS)]
        for row in range(PROMPTS)
    ]


def answers(engine: Any) -> list[Any]:
    """For each prompt its tokens and their log-probabilities, one prompt after the other."""
    found = []
    for ids in prompts():
        given = engine.generate(input_ids=ids, sampling_params=SAMPLING, return_logprob=True)
        pairs = given["meta_info"]["output_token_logprobs"]
        found.append([given["output_ids"], [pair[0] for pair in pairs]])
    return found


def run(options: dict[str, Any]) -> dict[str, Any]:
    update = options.pop("update", None)
    began = time.monotonic()
    import sglang

    imported = time.monotonic()
    engine = sglang.Engine(**{**CALM, **options})
    started = time.monotonic()
    found: dict[str, Any] = {"answers": answers(engine)}
    found |= {
        "import_s": imported - began,
        "engine_s": started - imported,
        "answers_s": time.monotonic() - started,
        "kv_tokens": engine.get_server_info().get("max_total_num_tokens"),
    }
    if update is not None:
        found["update"] = str(engine.update_weights_from_disk(update, "auto"))
        found["answers_after_update"] = answers(engine)
    return found


def main() -> None:
    options, path = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
    try:
        found = run(options)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(path)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
