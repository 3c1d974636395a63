"""A machine in the middle of its day: two models that are swapped, workers, a pin, a region, a job that failed."""

from __future__ import annotations

import gpuwm

import stage

MARKUP = "<img src=x onerror=boom()>"  # as the name of a client: 128 bytes of anything
MARKUP_COMMAND = "<b>&\"'boom</b>"  # 15 bytes: what `ps` shows

MARKUP_FOLDER = "<i>broken<i>"  # in the message of the error

REGION = ("import gpuwm", "held = gpuwm.Pool(8 << 20, name='kv-cache')")


def play(it: stage.Stage, mib: int = 1) -> None:
    """mib: what the smallest version has."""
    it.load("llama-3.1-8b@v1", f"{6 * mib}M", 1)
    it.load("llama-3.1-8b@v2", f"{6 * mib}M", 2)
    it.load("llama-3.1-8b@v2b", f"{6 * mib}M", 2, share_with="llama-3.1-8b@v2")
    it.load("qwen2.5-7b@2024-11", f"{4 * mib}M", 3, device=1)
    it.load("embed/bge-large@v3", f"{2 * mib}M", 4, device=1)
    it.load("research/draft@seed-7", f"{mib}M", 5)
    it.worker("llama-3.1-8b@v1", name="vllm")
    it.admin.swap("llama-3.1-8b", "v2")
    it.worker("llama-3.1-8b", "embed/bge-large", name="vllm", lines=REGION)
    it.worker("qwen2.5-7b", name=MARKUP_COMMAND)
    it.admin.pin("embed/bge-large", "search")
    it.admin.swap("llama-3.1-8b", "v2", alias="prod")
    it.admin.swap("qwen2.5-7b", "2024-11", alias="eval")
    try:
        it.admin.pin("nobody/knows@this", "search")
    except gpuwm.NotFound:
        pass
    broken = it.models / MARKUP_FOLDER
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"\xff" * 64)
    failed = it.admin.load(broken, "qwen2.5-7b@broken", devices=it.devices[-1])
    try:
        failed.wait(stage.START_S)
    except gpuwm.Error:
        return
    raise AssertionError("a broken file was loaded")
