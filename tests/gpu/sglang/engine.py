"""One engine of SGLang, which answers a few prompts: engine.py OPTIONS.json ANSWER.json

OPTIONS are those of `sglang.Engine`. ANSWER gets the seconds of each step, the tokens and
log-probabilities of each answer, or the error. SGLang starts further processes, which import this
file too: the stand-ins below are for all of them."""

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

# Neither was carried, and with these options neither is called.
stubs.PACKAGES = ("flashinfer", "IPython")
stubs.add_finder()

PROMPTS, PROMPT_TOKENS, ANSWER_TOKENS = 4, 64, 32
FIRST_TOKEN, TOKENS = 100, 1800  # below the vocabulary of the smallest model
ATTENTION = "triton"
CALM: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "attention_backend": ATTENTION,
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_radix_cache": True,  # no answer depends on another
    "random_seed": 1,
    "mem_fraction_static": 0.5,
    "log_level": "info",
}


def prompts() -> list[list[int]]:
    """The same in each run."""
    return [
        [FIRST_TOKEN + (97 * number + 31 * at * at + 7 * at) % TOKENS for at in range(PROMPT_TOKENS)]
        for number in range(PROMPTS)
    ]


def answer(options: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    import sglang

    imported = time.monotonic()
    engine = sglang.Engine(**{**CALM, **options})
    started = time.monotonic()
    sampling = {"temperature": 0.0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True}
    answers = [
        engine.generate(input_ids=ids, sampling_params=sampling, return_logprob=True)
        for ids in prompts()
    ]
    answered = time.monotonic()
    info = engine.get_server_info()
    updated = None
    if options.get("load_format") == "gpuwm":
        updated = str(engine.collective_rpc) if not hasattr(engine, "tokenizer_manager") else None
    found = {
        "import_s": imported - began,
        "engine_s": started - imported,
        "answers_s": answered - started,
        "tokens": [each["output_ids"] for each in answers],
        "logprobs": [[pair[0] for pair in each["meta_info"]["output_token_logprobs"]] for each in answers],
        "kv_tokens": info.get("max_total_num_tokens"),
        "updated": updated,
    }
    # The driver measures memory while the engine serves, and then ends this process.
    return found


def main() -> None:
    options, path = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
    try:
        found = answer(options)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(path)
    sys.stdin.read()  # until the driver ends it
    os._exit(0)


if __name__ == "__main__":
    main()
