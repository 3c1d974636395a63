"""Multi-head latent attention without its kernels: enough to build a model that uses it."""

from __future__ import annotations

from typing import Any

from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend
from vllm.v1.attention.backends.mla.prefill.registry import (
    MLAPrefillBackendEnum,
    register_mla_prefill_backend,
)


class NoPrefill(MLAPrefillBackend):  # type: ignore[misc]
    @staticmethod
    def get_name() -> str:
        return "NO_PREFILL"

    def run_prefill_new_tokens(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError("these tests load models, and run none")

    def run_prefill_context_chunk(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError("these tests load models, and run none")


def register() -> None:
    """Puts NoPrefill in the place of flash attention, which the builds without kernels lack."""
    register_mla_prefill_backend(
        MLAPrefillBackendEnum.FLASH_ATTN, f"{__name__}.{NoPrefill.__name__}"
    )
