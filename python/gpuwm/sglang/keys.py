"""Keys of the versions that SGLang's engines share: computed from an engine's configuration.

They have the same parts as those of vLLM's engines: the layout (here), the backends that the layers
of a built model chose (`gpuwm.sglang.backends`) and the identity of the checkpoint
(`gpuwm.sglang.identity`).

This module imports SGLang and torch only inside its functions.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from ..engines import fields, texts
from . import arguments

# Fields that tell one rank's part from another's. A version has one name, so the name can't depend
# on them.
RANK_FIELDS = ("tp.rank", "pp.rank", "attention.rank", "experts.rank")

# Packages that have kernels, or that decide how a checkpoint is read or packed.
PACKAGES = (
    "transformers",
    "triton",
    "sglang-kernel",
    "sgl-kernel",
    "sgl-deep-gemm",
    "flashinfer-python",
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "flash-attn-4",
    "nvidia-cutlass-dsl",
    "compressed-tensors",
    "torchao",
    "humming-kernels",
    "tilelang",
    "tokenspeed-mla",
    "quack-kernels",
    "amd-aiter",
)


def layout(server_args: Any, model_config: Any, load_config: Any, device: str) -> dict[str, str]:
    """The fields of a key that decide how the weights of one rank lie in memory. They are in the
    order in which `compare` names a difference.

    server_args: `arguments.decided()`. model_config, load_config: as SGLang's loader has them.
    device: of torch's kind, "cuda" or "cpu". Call it once, before the model is built. SGLang's
    process groups must be there.
    It returns at most 25 fields of at most 255 bytes. With three of the identity and two of the
    backends there are 30. A key of gpuwm may have 64.
    """
    found = {
        "model": _model(model_config),
        "role": _role(server_args, model_config, load_config),
        "dtype": str(texts.plain(model_config.dtype)),
        "quantization": _quantization(model_config, load_config),
        **_ranks(server_args),
        **{
            name: _shown(arguments.changed(server_args, name))
            for name in arguments.TABLE
            if name != "role"
        },
        "lora": "on" if getattr(server_args, "enable_lora", False) else "off",
        "config": fields.config(model_config),
        "arch": _arch(device),
        "sglang": importlib.metadata.version("sglang"),
        "torch": fields.torch_version(),
        "packages": fields.packages(PACKAGES),
        "arguments": _shown(arguments.others(server_args)),
        "environment": arguments.environment(),
    }
    return {name: texts.short(value) for name, value in found.items() if value}


def _model(model_config: Any) -> str:
    """The class that SGLang builds."""
    from sglang.srt.model_loader.utils import get_model_architecture

    built, kind = get_model_architecture(model_config)
    if not built.__module__.startswith("sglang."):  # a plugin's class, perhaps with the same name
        return f"{kind} of {built.__module__}"
    return kind if built.__name__ == kind else f"{kind} as {built.__name__}"


def _role(server_args: Any, model_config: Any, load_config: Any) -> str:
    """Target or draft, and what the model is run as. A draft that is a layer of the target's own
    checkpoint reads other tensors of the same files."""
    name = "draft" if model_config.is_draft_model else "target"
    if load_config.draft_model_idx is not None:
        name += f" {load_config.draft_model_idx}"
    more = arguments.changed(server_args, "role")
    return f"{name} {texts.canonical(more)}" if more else name


def _shown(found: dict[str, Any]) -> str:
    return texts.canonical(found) if found else "defaults"


def quantization(model_config: Any, load_config: Any) -> Any:
    """Everything that says how weights are quantised, as plain data."""
    from sglang.srt.model_loader import loader

    hf_config = texts.plain(model_config.hf_config)
    engine = None
    if model_config.quantization is not None:
        engine = texts.plain(loader._get_quantization_config(model_config, load_config))
    # when a model is built, the names of its packed modules are written into it
    if isinstance(engine, dict):
        engine.pop("packed_modules_mapping", None)
    return {
        "method": model_config.quantization,
        "checkpoint": hf_config.get("quantization_config") or hf_config.get("compression_config"),
        "engine": engine,
    }


def _quantization(model_config: Any, load_config: Any) -> str:
    found = quantization(model_config, load_config)
    if not any(found.values()):
        return "none"
    return texts.short(str(found["method"] or "none"), found)


def _ranks(server_args: Any) -> dict[str, str]:
    """This process's position in each kind of parallelism. Sizes and ranks of attention and experts
    follow from others; they have fields only if they shard in another way."""
    from sglang.srt.runtime_context import get_parallel

    now = get_parallel()
    found = {
        "tp": str(now.tp_size),
        "tp.rank": str(now.tp_rank),
        "pp": str(now.pp_size),
        "pp.rank": str(now.pp_rank),
    }
    decode = getattr(server_args, "dcp_size", 1)  # if the size is 1, there is no process group
    attention = (now.attn_tp_size, now.attn_cp_size, now.attn_dp_size, decode)
    if attention != (now.tp_size, 1, 1, 1):
        tp, context, data, _ = attention
        found["attention.ranks"] = (
            f"tensor parallel over {tp}, context over {context}, data over {data}, decode context "
            f"over {decode}"
        )
        found["attention.rank"] = f"{now.attn_tp_rank}, {now.attn_cp_rank}, {now.attn_dp_rank}"
    experts = (now.moe_tp_size, now.moe_ep_size, now.moe_dp_size)
    if experts != (now.tp_size, 1, 1):
        tp, parallel, data = experts
        found["experts"] = f"tensor parallel over {tp}, expert over {parallel}, data over {data}"
        found["experts.rank"] = f"{now.moe_tp_rank}, {now.moe_ep_rank}, {now.moe_dp_rank}"
    return found


def _arch(device: str) -> str:
    """The device, as far as kernels and their workspaces depend on it."""
    import torch

    if device == "cpu":
        from sglang.srt.utils import cpu_has_amx_support

        packed = ", packed for AMX" if cpu_has_amx_support() else ""
        return f"cpu {torch.backends.cpu.get_cpu_capability()}{packed}"
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    kind = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    kind = kind or f"sm_{properties.major}{properties.minor}"
    # Marlin's workspace has an entry for each multiprocessor: a MIG slice has fewer.
    return f"{kind}, {properties.multi_processor_count} multiprocessors"
