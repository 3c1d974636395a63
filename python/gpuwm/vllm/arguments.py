"""The fields of vLLM's configuration that count in a key and have no field of their own there.

A field that is in neither table counts too, since it may change weights, and the log names it: a
newer vLLM may have it. Fields count if their values are other ones than vLLM's defaults.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from .. import errors
from ..engines import texts
from . import harmless

log: logging.Logger = logging.getLogger("vllm.gpuwm")

# CLASS.FIELD. A field that is a configuration counts as a whole.
COUNTS = (
    *("VllmConfig.additional_config", "VllmConfig.diffusion_config", "VllmConfig.engram_config"),
    *("ModelConfig.disable_sliding_window", "ModelConfig.override_attention_dtype"),
    "ModelConfig.enable_prompt_embeds",
    "MultiModalConfig.video_pruning_method",
    *("CacheConfig.mamba_cache_dtype", "CacheConfig.mamba_ssm_cache_dtype"),
    *("CacheConfig.use_replayssm", "CacheConfig.use_kda_recoverssm"),
    *("ParallelConfig.dcp_comm_backend", "ParallelConfig.dcp_q_replicate"),
    *("ParallelConfig.enable_batch_sharded_sampling", "ParallelConfig.enable_hc_sp"),
    *("KernelConfig.enable_bf16x3_router_gemm", "KernelConfig.sparse_indexer_topk_backend"),
    *("KernelConfig.linear_backend_per_quant", "KernelConfig.monokernel"),
    *("MambaConfig.backend", "MambaConfig.enable_stochastic_rounding"),
    *("MambaConfig.stochastic_rounding_philox_rounds", "MambaConfig.ssu_algorithm"),
)
# Those that count for the weights of a draft, and not for those of its target.
OF_DRAFT = (
    *("SpeculativeConfig.method", "SpeculativeConfig.draft_tensor_parallel_size"),
    *("SpeculativeConfig.moe_backend", "SpeculativeConfig.attention_backend"),
    *("SpeculativeConfig.use_local_argmax_reduction", "SpeculativeConfig.use_heterogeneous_vocab"),
    *("SpeculativeConfig.parallel_drafting", "SpeculativeConfig.kv_cache_dtype"),
    *("SpeculativeConfig.index_share_for_mtp_iteration",),
    *("SpeculativeConfig.draft_lm_head_quantization",),
)

_EMPTY: tuple[Any, ...] = (None, "", {}, [])
_NONE = object()
_told: set[str] = set()


class Field(NamedTuple):
    """path: CLASS.FIELD."""

    path: str
    value: Any
    default: Any

    def is_changed(self) -> bool:
        """Whether the value is another one than the default. All empty values are the same, and
        False is the same as an empty default: vLLM fills that in."""
        value, default = texts.plain(self.value), texts.plain(self.default)
        if default in _EMPTY:
            return not (value is False or value in _EMPTY)
        return bool(value != default)


def others(vllm_config: Any, model_config: Any, is_draft: bool) -> str:
    """The fields that count and are not vLLM's defaults, with their values. Raises Unsupported if
    vLLM's configuration has no fields that can be listed."""
    if not dataclasses.is_dataclass(vllm_config):
        raise errors.Unsupported(
            f"vLLM's configuration is a {type(vllm_config).__name__}, whose fields can't be listed",
            "use a release of vLLM that gpuwm supports",
        )
    found = {
        field.path: texts.plain(field.value)
        for field in _fields(vllm_config, model_config)
        if _counts(field.path, is_draft) and field.is_changed()
    }
    _tell([path for path in found if not is_known(path)])
    return texts.canonical(found) if found else ""


def is_known(path: str) -> bool:
    """Whether a field is in one of the tables."""
    return path in COUNTS or path in OF_DRAFT or _is_harmless(path)


def _is_harmless(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in harmless.FIELDS)


def _counts(path: str, is_draft: bool) -> bool:
    if path in OF_DRAFT:
        return is_draft
    return path in COUNTS or not _is_harmless(path)


def _fields(config: Any, model_config: Any) -> Iterator[Field]:
    """The fields of a configuration, and of those below it that are in neither table."""
    kind = type(config).__name__
    for field in dataclasses.fields(config):
        path = f"{kind}.{field.name}"
        value = getattr(config, field.name, None)
        if path == "VllmConfig.model_config":
            value = model_config
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and not is_known(path):
            yield from _fields(value, model_config)
        else:
            yield Field(path, value, _default(type(config), field))


def _default(kind: type, field: Any) -> Any:
    """A default that equals no value if the field has none."""
    described = getattr(kind, "__pydantic_fields__", {}).get(field.name)
    if described is not None:
        found = described.get_default(call_default_factory=True)
        return _NONE if type(found).__name__ == "PydanticUndefinedType" else found
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NONE if field.default is dataclasses.MISSING else field.default


def _tell(paths: list[str]) -> None:
    new = sorted(set(paths) - _told)
    _told.update(new)
    if new:
        log.warning(
            "gpuwm: weights may depend on fields of vLLM's configuration that gpuwm does not know, "
            "so an engine shares weights only with engines that have the same values there: %s",
            ", ".join(new),
        )
