"""gpuwm-serve with engines of vLLM: they sleep and wake as an operator's command has them."""

from __future__ import annotations

import concurrent.futures
import pathlib
import sys
from typing import Any

import numpy as np
from conftest import Daemon, eventually
from serving_models import GIB, serving

TOKENS = 4
LONG = 2000  # tokens that take longer than `drain`


def test_engines_of_vllm_take_turns_and_keep_their_requests(checkpoints: pathlib.Path) -> None:
    command = [sys.executable, "-m", "tests_vllm.serve_engine"]
    command += ["{socket}", "{name}", str(checkpoints / "dense")]
    model = {"command": command, "start": 300, "sleep": 60, "wake": 60, "drain": 0.2}
    tables: dict[str, Any] = {"models": {"a": model, "b": model}, "devices": {"0": 10 * GIB}}
    with serving(tables) as serve:

        def ask(name: str, tokens: int) -> list[int]:
            body = {"model": name, "max_tokens": tokens}
            status, found = serve.ask(body, "/v1/completions", seconds=300)
            assert (status, found["model"]) == (200, name), found
            told: list[int] = found["tokens"]
            return told

        for name in "aba":
            assert ask(name, TOKENS) == [1] * TOKENS
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            long = thread.submit(ask, "a", LONG)
            eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
            assert ask("b", TOKENS) == [1] * TOKENS
            assert not long.done()
            assert long.result() == [1] * LONG


def test_an_alias_that_moves_switches_an_engine_under_traffic(
    checkpoints: pathlib.Path, daemon: Daemon
) -> None:
    """The rank has two versions, and goes to the other one with each switch."""
    for tag in ("v1", "v2"):
        daemon.load(f"m@{tag}", {"weight": np.ones(8, np.uint8)})
    daemon.admin.swap("m", "v1", alias="prod")
    command = [sys.executable, "-m", "tests_vllm.serve_engine"]
    command += ["{socket}", "{name}", str(checkpoints / "dense")]
    model = {"command": command, "start": 300, "wake": 60, "version": "m@prod"}
    tables: dict[str, Any] = {"models": {"a": model}, "devices": {"0": 10 * GIB}}
    with serving(tables) as serve:

        def ask(tokens: int) -> list[int]:
            body = {"model": "a", "max_tokens": tokens}
            told: list[int] = serve.ask(body, "/v1/completions", seconds=300)[1]["tokens"]
            return told

        first = ask(TOKENS)[0]
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            long = thread.submit(ask, LONG)
            assert ask(TOKENS) == [first] * TOKENS
            daemon.admin.swap("m", "v2", alias="prod")
            found = long.result()
        assert (len(found), found[0], found[-1]) == (LONG, first, 3 - first)
