"""The settings of SGLang's load format: those of all engines. SGLang measures the GPU's free memory
itself, so vLLM's keys on sharing a GPU do not exist here."""

from __future__ import annotations

from typing import Any

from ..engines import settings as shared
from ..engines.settings import Settings

__all__ = ["INNER", "KEYS", "Settings", "parse"]
KEYS = tuple(shared.CHECKS)
# Load formats of SGLang that read a plain checkpoint into the model that SGLang builds.
INNER = (
    *("auto", "safetensors", "fastsafetensors", "runai_streamer", "mistral", "pt", "npcache"),
    "dummy",
)


def parse(given: Any) -> Settings:
    """`gpuwm.engines.settings.parse`. It also raises Invalid for an inner load format that SGLang
    does not have."""
    settings = shared.parse(given, Settings, shared.CHECKS, " in SGLang")
    if settings.inner not in INNER:
        raise shared.wrong(
            "inner",
            settings.inner,
            f"a load format of SGLang that reads a plain checkpoint: {', '.join(INNER)}",
        )
    return settings
