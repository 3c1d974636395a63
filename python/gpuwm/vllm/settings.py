"""The settings of vLLM's load format: those of all engines, and those of engines that share a
GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..engines import settings as shared
from ..engines.settings import CACHES, MODES
from . import memory

__all__ = ["MODES", "Settings", "parse"]


@dataclass(frozen=True)
class Settings(shared.Settings):
    """The keys of `--model-loader-extra-config`; `gpuwm.vllm.model_loader` documents each."""

    engines: int = 1
    engine_overhead_gib: float | None = None
    standby: str | None = None


_CHECKS: Mapping[str, shared.Check] = {
    **shared.CHECKS,
    "caches": shared.one_of(CACHES),
    memory.ENGINES_KEY: memory.engines_of,
    memory.OVERHEAD_KEY: memory.overhead_of,
    memory.STANDBY_KEY: shared.text_like(
        'the path of a lock, which "python -m gpuwm.vllm standby" sets'
    ),
}


def parse(given: Any) -> Settings:
    """`gpuwm.engines.settings.parse` with vLLM's keys."""
    return shared.parse(given, Settings, _CHECKS)
