"""Keys of the versions that vLLM's engines share: computed from an engine's configuration.

A key has three parts, all of them fields of a gpuwm key (name to short text):

- The *layout*, `layout()`: everything that changes the bytes, shapes, strides or existence of what
  vLLM's post-processing leaves for one checkpoint. It is known before the model is built. A setting
  that gpuwm does not know is a part of it: `gpuwm.vllm.arguments`.
- The *backends*, `gpuwm.vllm.backends`: the kernels that the layers of a built model chose. The
  layout has every setting that the choice depends on; the backends prove that the layers chose the
  same.
- The *identity*, `gpuwm.vllm.identity`: which checkpoint it is.

A publisher gives all three. An engine that attaches asks for the layout and, with a derived name or
in mode `auto`, for the identity. It compares the backends once its model is built
(`gpuwm.vllm.differences`). A switch asks for layout and backends.

This module imports vLLM and torch only inside its functions.
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any, NamedTuple

from ..engines import fields as shared
from ..engines import texts
from ..engines.fields import configuration
from . import arguments, variables

__all__ = ["RANK_FIELDS", "Ranks", "configuration", "layout", "ranks"]

# Fields that tell one rank's part from another's. A version has one name, so the name can't depend
# on them.
RANK_FIELDS = ("tp.rank", "pp.rank", "context.rank", "experts.rank")

# Packages that have kernels, or that decide how a checkpoint is read or packed.
PACKAGES = (
    "transformers",
    "triton",
    "flashinfer-python",
    "flashinfer-cubin",
    "deep-gemm",
    "nvidia-cutlass-dsl",
    "compressed-tensors",
    "torchao",
    "humming-kernels",
    "tilelang",
    "fbgemm-gpu-genai",
    "conch-triton-kernels",
    "amd-aiter",
    "amd-quark",
    "zentorch",
)

# Settings of attention that choose sizes inside a kernel.
_KERNEL_SIZES = ("flash_attn_max_num_splits", "tq_max_kv_splits", "flex_attn_")

# Models whose modules keep memory or values that depend on the engine's limits. For other models
# engines share weights whatever their limits are.
_LIMITED_BY_LENGTH = re.compile(r"Llama4|MiniMaxM2|DeepseekV32|DeepSeekV4|GlmMoeDsa")
_LIMITED_BY_BATCH = re.compile(
    r"Gemma3n|Gemma4|Granite4Vision|DeepseekV32|DeepSeekV4|GlmMoeDsa"
    r"|Qwen3VL|Qwen3Omni|ColQwen3|Cosmos3"
)

# Settings of poolers that only vLLM's front end reads, and no module.
_POOLED_OUTSIDE = ("enable_chunked_processing", "max_embed_len")


class Ranks(NamedTuple):
    """The position of a process: in tensor parallelism, in pipeline parallelism, among those that
    share the experts of a layer (experts: over data, context and tensor parallelism), and in
    context parallelism of the prefill (context). The position in context parallelism of the decode
    follows from tp."""

    tp: int = 0
    pp: int = 0
    experts: int = 0
    context: int = 0


def ranks(vllm_config: Any) -> Ranks:
    """The position of this process, from vLLM's process groups, which must be there."""
    from vllm.distributed import parallel_state

    parallel = vllm_config.parallel_config
    tp = parallel_state.get_tp_group().rank_in_group
    context_size = getattr(parallel, "prefill_context_parallel_size", 1)
    context = parallel_state.get_pcp_group().rank_in_group if context_size > 1 else 0
    data = parallel_state.get_dp_group().rank_in_group if parallel.data_parallel_size > 1 else 0
    experts = (data * context_size + context) * parallel.tensor_parallel_size + tp
    return Ranks(tp, parallel_state.get_pp_group().rank_in_group, experts, context)


def layout(
    vllm_config: Any, model_config: Any, prefix: str = "", at: Ranks | None = None
) -> dict[str, str]:
    """The fields of a key that decide how the weights of one rank lie in memory. They are in the
    order in which `compare` names a difference.

    vllm_config, model_config, prefix: as vLLM's loader gets them. at: the rank. None: this
    process's (`ranks`). Call it once, before the model is built: building it writes into vLLM's
    quantisation config. It returns at most 27 fields of at most 255 bytes. With three of the
    identity and three of the backends there are 33. A key of gpuwm may have 64.
    """
    at = ranks(vllm_config) if at is None else at
    parallel = vllm_config.parallel_config
    fields = {
        "model": _model(model_config),
        "role": _role(vllm_config, model_config, prefix),
        "dtype": str(texts.plain(model_config.dtype)),
        "quantization": _quantization(vllm_config, model_config),
        "tp": str(parallel.tensor_parallel_size),
        "tp.rank": str(at.tp),
        "pp": str(parallel.pipeline_parallel_size),
        "pp.rank": str(at.pp),
        **_context(parallel, at),
        **_experts(vllm_config, model_config, at),
        "cache": _cache(vllm_config.cache_config),
        "attention": _attention(vllm_config),
        "linear": str(getattr(vllm_config.kernel_config, "linear_backend", "auto")),
        "lora": "off" if vllm_config.lora_config is None else "on",
        "multimodal": _multimodal(model_config),
        "pooler": _pooler(vllm_config, model_config),
        "limits": _limits(vllm_config, model_config),
        "config": shared.config(model_config),
        "arch": _arch(),
        "vllm": importlib.metadata.version("vllm"),
        "torch": shared.torch_version(),
        "packages": shared.packages(PACKAGES),
        "environment": _environment(),
        "others": arguments.others(vllm_config, model_config, _is_draft(vllm_config, model_config)),
    }
    return {name: texts.short(value) for name, value in fields.items() if value}


# ---- the fields ---------------------------------------------------------------------------------


def _model(model_config: Any) -> str:
    """The class that vLLM builds, and what it is run as: pooling models have other heads."""
    from vllm.model_executor.model_loader.utils import get_model_architecture

    built, kind = get_model_architecture(model_config)
    if not built.__module__.startswith("vllm."):  # a plugin's class, perhaps with the same name
        kind += f" of {built.__module__}"
    implementation = str(texts.plain(getattr(model_config, "model_impl", "auto")))
    if implementation not in ("auto", "vllm"):
        kind += f", implementation {implementation}"
    overrides = getattr(model_config, "model_class_overrides", None)
    if overrides:
        kind += f", classes {texts.canonical(overrides)}"
    kind += f", runner {model_config.runner_type}"
    convert = model_config.convert_type
    return kind if convert == "none" else f"{kind}, converted to {convert}"


def _role(vllm_config: Any, model_config: Any, prefix: str) -> str:
    """Target or draft. A draft that is a layer of the target's own checkpoint reads other tensors
    of the same files."""
    name = "draft" if _is_draft(vllm_config, model_config) else "target"
    return f"{name} {prefix}" if prefix else name


def _is_draft(vllm_config: Any, model_config: Any) -> bool:
    speculative = vllm_config.speculative_config
    return bool(
        model_config.runner_type == "draft"
        or (
            speculative is not None
            and model_config is speculative.draft_model_config
            and model_config is not speculative.target_model_config
        )
    )


def quantization(vllm_config: Any, model_config: Any) -> Any:
    """Everything that says how weights are quantised, as plain data."""
    hf_config = texts.plain(model_config.hf_config)
    return {
        "method": model_config.quantization,
        "asked": texts.plain(getattr(model_config, "quantization_config", None)),
        "checkpoint": hf_config.get("quantization_config") or hf_config.get("compression_config"),
        "engine": texts.plain(_without_mapping(vllm_config.quant_config)),
    }


def _without_mapping(quant_config: Any) -> Any:
    """The config without the names of packed modules, which are written into it when a model is
    built."""
    if quant_config is None:
        return None
    found = texts.plain(quant_config)
    if isinstance(found, dict):
        found.pop("packed_modules_mapping", None)
    return found


def _quantization(vllm_config: Any, model_config: Any) -> str:
    found = quantization(vllm_config, model_config)
    if not any(found.values()):
        return "none"
    name, asked = str(found["method"] or "none"), found["asked"]
    return texts.short(f"{name} {texts.canonical(asked)}" if asked else name, found)


def _context(parallel: Any, at: Ranks) -> dict[str, str]:
    """Context parallelism: each attention layer holds its size and rank, and chooses its code by
    them."""
    decode = getattr(parallel, "decode_context_parallel_size", 1)
    prefill = getattr(parallel, "prefill_context_parallel_size", 1)
    found = f"decode over {decode}, prefill over {prefill}"
    interleaved = getattr(parallel, "cp_kv_cache_interleave_size", 1)
    if interleaved != 1:
        found += f", interleaved by {interleaved}"
    return {"context": found, "context.rank": str(at.context) if prefill > 1 else ""}


def _experts(vllm_config: Any, model_config: Any, at: Ranks) -> dict[str, str]:
    """Experts: data parallelism shards them and nothing else, so dense models share weights over
    it."""
    if not model_config.is_moe:
        return {}
    parallel = vllm_config.parallel_config
    size = (
        parallel.data_parallel_size
        * getattr(parallel, "prefill_context_parallel_size", 1)
        * parallel.tensor_parallel_size
    )
    experts = f"tensor parallel over {size}"
    if parallel.enable_expert_parallel and size > 1:
        experts = f"expert parallel over {size}, placed {parallel.expert_placement_strategy}"
        if parallel.enable_eplb:
            experts += f", {parallel.eplb_config.num_redundant_experts} redundant"
    backend = getattr(vllm_config.kernel_config, "moe_backend", "auto")
    overlapped = ", dual batch overlap" if getattr(parallel, "enable_dbo", False) else ""
    return {
        "experts": experts,
        "experts.rank": str(at.experts),
        "moe": f"{backend}, {parallel.all2all_backend}{overlapped}",
    }


def _cache(cache: Any) -> str:
    """The KV cache: if it is quantised, its scales lie beside the weights."""
    found = str(cache.cache_dtype)
    if getattr(cache, "calculate_kv_scales", False):
        found += ", scales calculated"
    if getattr(cache, "kv_sharing_fast_prefill", False):
        found += ", fast prefill"
    skipped = getattr(cache, "kv_cache_dtype_skip_layers", None)
    return f"{found}, not in {texts.canonical(skipped)}" if skipped else found


def _attention(vllm_config: Any) -> str:
    """Attention: what was asked for, and what vLLM's choice depends on besides model and GPU."""
    config = vllm_config.attention_config
    default = texts.plain(type(config)())
    others = {
        name: value
        for name, value in texts.plain(config).items()
        if value != default.get(name) and not name.startswith(_KERNEL_SIZES)
    }
    name = others.pop("backend", None) or "auto"
    cache = vllm_config.cache_config
    if getattr(cache, "user_specified_block_size", False):
        others["block_size"] = cache.block_size
    return f"{name} {texts.canonical(others)}" if others else str(name)


def _multimodal(model_config: Any) -> str:
    """Multimodal models: towers that are left out, or that every rank has whole."""
    config = model_config.multimodal_config
    if config is None:
        return ""
    found = {
        name: texts.plain(getattr(config, name, None))
        for name in (
            "language_model_only",
            "mm_encoder_only",
            "mm_encoder_tp_mode",
            "mm_encoder_attn_backend",
            "mm_encoder_attn_dtype",
            "mm_encoder_fp8_scale_path",
            "video_pruning_rate",
        )
    }
    # vLLM does not build the tower of a modality whose limit is 0.
    limits = texts.plain(getattr(config, "limit_per_prompt", None)) or {}
    found["without"] = [name for name in sorted(limits) if _count(limits[name]) == 0]
    return texts.canonical({name: value for name, value in found.items() if value})


def _count(limit: Any) -> Any:
    return limit.get("count") if isinstance(limit, dict) else limit


def _pooler(vllm_config: Any, model_config: Any) -> str:
    """The pooler: what its modules hold of its configuration."""
    config = texts.plain(getattr(model_config, "pooler_config", None))
    if not isinstance(config, dict):
        return ""
    found = {
        name: value
        for name, value in config.items()
        if value is not None and name not in _POOLED_OUTSIDE
    }
    # Poolers of tokens read this setting.
    found["chunked_prefill"] = bool(vllm_config.scheduler_config.enable_chunked_prefill)
    return texts.canonical(found)


def _limits(vllm_config: Any, model_config: Any) -> str:
    found = []
    config = texts.canonical(model_config.hf_config)
    architecture = model_config.architecture
    if '"longrope"' in config or _LIMITED_BY_LENGTH.search(architecture):
        found.append(f"max_model_len {model_config.max_model_len}")
    limited = '"index_topk"' in config or _LIMITED_BY_BATCH.search(architecture)
    if limited or model_config.is_moe:
        batch = vllm_config.scheduler_config.max_num_batched_tokens
        found.append(f"max_num_batched_tokens {batch}")
    if model_config.is_moe:  # each layer of experts holds both
        captured = vllm_config.compilation_config.max_cudagraph_capture_size or 0
        found.append(f"max_cudagraph_capture_size {captured}")
    if getattr(model_config, "is_hybrid", False) or getattr(
        model_config, "is_attention_free", False
    ):  # layers with a state keep one state for each speculated token
        speculative = vllm_config.speculative_config
        tokens = 0 if speculative is None else speculative.num_speculative_tokens
        found.append(f"num_speculative_tokens {tokens}")
    return ", ".join(found)


def _arch() -> str:
    """The device, as far as kernels and their workspaces depend on it."""
    import torch
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return f"cpu {torch.backends.cpu.get_cpu_capability()}"
    if not current_platform.is_cuda_alike():
        return f"{current_platform.device_type} {current_platform.get_device_name()}"
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    kind = getattr(properties, "gcnArchName", "") if current_platform.is_rocm() else ""
    kind = kind or f"sm_{properties.major}{properties.minor}"
    # Marlin's workspace has an entry for each multiprocessor: a MIG slice has fewer.
    return f"{kind}, {properties.multi_processor_count} multiprocessors"


def _environment() -> str:
    changed = variables.changed()
    return ", ".join(f"{name}={_value(changed[name])}" for name in sorted(changed)) or "defaults"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else texts.canonical(value)
