"""What engines say in their logs, and how it is read."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

import logs

BUILD = pathlib.Path(os.environ["GPUWM_BUILD"])
SITE = BUILD / "gpu-engines" / "vllm" / "site" / "vllm"
PREFIX = "(Worker_TP1 pid=7) INFO 11-22 21:08:07 [loading.py:203] "
BUILT = (
    "gpuwm: built dense@1 (278fc0ee640c05543122339c1c978397), since it was not there: 16.06 GB in "
    "324 tensors; loader auto 2.31 s, publish 0.24 s. Other engines attach to it"
)
ATTACHED = (
    "gpuwm: attached dense@1 (278fc0ee640c05543122339c1c978397), 16.06 GB, made by "
    "vLLM 0.25.1, process 12, from /m/dense, in 0.163 s: build 0.139 s, attach 0.004 s, "
    "install and post-process 0.020 s, of it post-processing 0.012 s"
)
RAW = BUILT.replace("loader auto 2.31 s", "from dense@raw on GPU-12ab-cd 0.80 s")
# What the patterns rely on, as vLLM's sources have it.
MESSAGES = (
    "Model loading took %s GiB and %.6f seconds",
    "Model loading took %s GiB memory and %.6f seconds",
    "Loading weights took %.2f seconds",
    "GPU KV cache size: %s tokens",
    "Available KV cache memory: %s GiB",
    "init engine (profile, create kv cache, warmup model) took",
    "torch.compile took %.2f s in total",
    "Graph capturing finished in %.0f secs, took %.2f GiB",
    "Using %s attention backend out of potential backends",
    "Loading model from scratch",
    "Starting to load model",
)


def fed(*lines: str) -> logs.Log:
    log = logs.Log()
    for line in lines:
        log.feed(line)
    return log


# ---- what engines say ---------------------------------------------------------------------------


def test_the_loaders_lines_give_way_version_and_seconds() -> None:
    built, attached, raw = fed(PREFIX + BUILT, PREFIX + ATTACHED, PREFIX + RAW).gpuwm
    assert built["way"] == "built"
    assert built["version"] == "dense@1"
    assert built["GB"] == 16.06
    assert built["seconds"] == {"loader auto": 2.31, "publish": 0.24}
    assert attached["way"] == "attached"
    assert attached["seconds"]["in all"] == 0.163
    assert attached["seconds"]["attach"] == 0.004
    assert attached["seconds"]["of it post-processing"] == 0.012
    assert raw["seconds"] == {"from dense@raw on GPU-12ab-cd": 0.80, "publish": 0.24}


def test_the_slowest_rank_counts() -> None:
    log = fed(
        PREFIX + "Model loading took 8.03 GiB and 0.401234 seconds",
        PREFIX + "Model loading took 8.01 GiB memory and 0.501234 seconds",
        PREFIX + "Available KV cache memory: 101.5 GiB",
        PREFIX + "GPU KV cache size: 1,234,560 tokens",
        PREFIX
        + "init engine (profile, create kv cache, warmup model) took 12.34 s (compilation: 8.12 s)",
        PREFIX + "torch.compile took 8.12 s in total",
        PREFIX + "Graph capturing finished in 5 secs, took 0.61 GiB",
        PREFIX + "Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
    )
    assert log.numbers == {
        "loaded GiB": 8.03,
        "loaded s": 0.501234,
        "KV GiB": 101.5,
        "KV tokens": 1234560,
        "engine initialised s": 12.34,
        "compiled s": 8.12,
        "graphs s": 5,
    }
    assert log.backend == "FLASH_ATTN"


def test_events_are_found_among_other_lines() -> None:
    log = fed(
        "noise",
        '@ {"event": "answered", "hashes": {"a": "1"}}',
        '@ {"event": "answered", "hashes": {}}',
    )
    assert log.count("answered") == 2
    assert log.event("answered") == {"event": "answered", "hashes": {}}
    assert log.event("started") is None


def test_errors_are_kept() -> None:
    log = fed(
        PREFIX + "all well",
        "Traceback (most recent call last):",
        "gpuwm.errors.Mismatch: tp is 2, not 1",
    )
    assert log.errors[-1] == "gpuwm.errors.Mismatch: tp is 2, not 1"


@pytest.mark.skipif(not SITE.exists(), reason="make gpu-bundle-vllm was not run")
def test_the_messages_are_vllms() -> None:
    found = set()
    for path in SITE.rglob("*.py"):
        # Adjacent literals are one message.
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text(errors="replace"))
        found |= {message for message in MESSAGES if message in text}
    assert found == set(MESSAGES)
