"""The settings in `--model-loader-extra-config`, which are checked before anything is connected."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from .. import errors
from ..vllm import settings as shared
from ..vllm.settings import Settings

# Keys of vLLM's load format that mean the same here. SGLang measures the GPU's free memory itself,
# so the keys on sharing a GPU are not among them.
KEYS = (
    *("ref", "mode", "inner", "inner_config", "fallback"),
    *("owner", "wait", "socket", "private"),
)
# Load formats of SGLang that read a plain checkpoint into the model that SGLang builds.
INNER = (
    *("auto", "safetensors", "fastsafetensors", "runai_streamer", "mistral", "pt", "npcache"),
    "dummy",
)


def parse(given: Any) -> Settings:
    """Reads the settings from a mapping. Raises Invalid, which names the key, its value, and what
    is allowed."""
    if isinstance(given, Mapping):
        for key in given:
            if key not in KEYS:
                near = difflib.get_close_matches(str(key), KEYS, 1)
                guess = f'did you mean "{near[0]}"? ' if near else ""
                raise errors.Invalid(
                    f"--model-loader-extra-config has a key {key!r}, which load format gpuwm does "
                    "not know in SGLang",
                    f"{guess}the keys are {', '.join(KEYS)}",
                )
    settings = shared.parse(given)
    if settings.inner not in INNER:
        raise errors.Invalid(
            f'"inner" in --model-loader-extra-config is {settings.inner!r}',
            f"a load format of SGLang that reads a plain checkpoint: {', '.join(INNER)}",
        )
    return settings


__all__ = ["INNER", "KEYS", "Settings", "parse"]
