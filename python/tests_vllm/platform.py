"""vLLM's platform for CPUs, as far as building and loading a model goes: vLLM here has none of its
compiled operators."""

from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from . import operators


class LoadingPlatform(CpuPlatform):  # type: ignore[misc]
    """Adds what post-processing calls, and multi-head latent attention, of whose kernels loading
    needs none; vLLM 0.33 has it on CPUs."""

    @classmethod
    def import_kernels(cls) -> None:
        operators.define()

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        if attn_selector_config.use_mla and not hasattr(AttentionBackendEnum, "CPU_MLA"):
            return str(AttentionBackendEnum.TRITON_MLA.get_path())
        return str(super().get_attn_backend_cls(selected_backend, attn_selector_config, num_heads))
