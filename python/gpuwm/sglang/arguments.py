"""The arguments and environment variables of SGLang on which loaded weights may depend.

The tables were made by reading SGLang 0.5.16: every use of `get_server_args()` in the code that
builds models and layers, chooses kernels and post-processes weights. Of SGLang 0.5.17 to 0.5.23 the
arguments were read that came since then. An argument that a release of SGLang does not have is left
out. An argument that is in no table counts too, since it may change weights (`others`): it is one
of a newer release, or of a plugin.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..engines import texts
from . import harmless

# By the field of the key. Arguments that have a field of their own are not here: sizes of groups,
# dtype, model.
TABLE: dict[str, tuple[str, ...]] = {
    "cache": ("kv_cache_dtype", "quantization_param_path"),
    "attention": (
        *("attention_backend", "decode_attention_backend", "prefill_attention_backend"),
        *("mm_attention_backend", "speculative_draft_attention_backend"),
        *("linear_attn_backend", "linear_attn_decode_backend", "linear_attn_prefill_backend"),
        *("mamba_backend", "mamba_ssm_dtype", "dsa_prefill_backend", "dsa_decode_backend"),
        *("dsa_paged_mqa_logits_backend", "dsa_topk_backend", "enable_deepseek_v4_fp4_indexer"),
        *("flashinfer_mla_disable_ragged", "enable_fused_qk_norm_rope"),
        *("enable_scattered_sconv", "disable_hybrid_swa_memory"),
        *("linear_attn_verify_backend", "dsv4_attn_backend", "dsv4_prefill_backend"),
        *("qsa_indexer_dtype", "speculative_dsa_topk_backend", "speculative_draft_kv_cache_dtype"),
        *("dsa_triton_union", "enable_dsa_fused_indexer", "enable_lean_attention"),
        *("enable_linear_replayssm", "enable_linear_replayssm_spec", "linear_replayssm_cache_len"),
        "enable_gdn_replayssm_spec",
        *("enable_mamba_cache_stochastic_rounding", "mamba_cache_philox_rounds"),
        *("enable_encoder_swa_bounded_replay", "enable_decoder_swa_bounded_replay"),
        *("enable_kv_cache_sharding", "prefill_kv_cache_dequant_dtype"),
    ),
    "linear": (
        *("fp8_gemm_runner_backend", "fp4_gemm_runner_backend", "bf16_gemm_backend"),
        *("enable_fp32_lm_head", "enable_dp_lm_head", "enable_tf32_matmul", "torchao_config"),
        *("modelopt_quant", "modelopt_checkpoint_restore_path", "quantize_and_serve"),
        *("modelopt_checkpoint_save_path", "modelopt_export_path"),
        *("enable_nvidia_megakernel", "enable_amd_monokernel"),
        *("rl_quant_profile", "rl_on_policy_target", "enable_deterministic_inference"),
        *("enable_precise_embedding_interpolation", "enable_quant_communications"),
    ),
    "moe": (
        *("moe_runner_backend", "moe_a2a_backend", "flashinfer_mxfp4_moe_precision"),
        *("speculative_moe_runner_backend", "speculative_moe_a2a_backend"),
        *("deepep_mode", "fuseep_mode", "deepep_dispatcher_output_dtype"),
        *("ep_num_redundant_experts", "ep_dispatch_algorithm", "init_expert_location"),
        *("disable_flashinfer_cutlass_moe_fp4_allgather", "enable_waterfill"),
        *("disable_shared_experts_fusion", "enforce_shared_experts_fusion"),
        *("enable_fused_moe_sum_all_reduce", "enable_two_batch_overlap"),
        *("enable_single_batch_overlap", "enable_w4a4_mxfp4_megamoe"),
        *("speculative_enable_w4a4_mxfp4_megamoe", "deepep_v2_mode"),
        *("flashinfer_a2a_dispatch_type", "deepep_config"),
    ),
    "parallel": (
        *("enable_dp_attention", "moe_dense_tp_size", "enable_attn_tp_input_scattered"),
        *("disable_attn_tp_gather", "enable_prefill_cp", "cp_strategy", "prefill_cp_mode"),
        *("enable_prefill_context_parallel", "enable_dsa_prefill_context_parallel"),
        *("dsa_prefill_cp_mode", "enable_dsa_cache_layer_split", "mm_enable_dp_encoder"),
        *("shared_experts_tp_size", "enable_shared_experts_attn_tp", "enable_dense_mlp_attn_tp"),
        *("enable_layernorm_sp", "enable_megamoe_for_layernorm_sp", "dcp_replicate_q_proj"),
        *("enable_cp_decode_attn_tp", "enable_tp_lm_head_all_to_all", "enable_cp_tp_group_sharing"),
        *("dcp_comm_backend", "boundary_reduction", "speculative_boundary_reduction"),
    ),
    "role": (
        *("encoder_only", "language_only", "language_model_only", "is_embedding"),
        "enable_multimodal",
        *("enable_return_routed_experts", "dllm_algorithm", "enable_mis"),
        *("speculative_algorithm", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        *("speculative_token_map", "enable_multi_layer_eagle", "speculative_attention_mode"),
        *("speculative_draft_window_size", "speculative_draft_sink_size", "uno_lora_path"),
        *("speculative_dflash_block_size", "speculative_domino_candidate_pool_size"),
        *("speculative_dspark_block_size", "speculative_dspark_confidence_sts_path"),
        "speculative_dspark_align_verify_tokens_to_graph_tier",
        *("decoupled_spec_role", "dllm_algorithm_config", "dllm_fdfo"),
        "enable_return_indexer_topk",
    ),
}

_EMPTY: tuple[Any, ...] = (None, "", {}, [])
_SECRET = ("key", "secret", "password", "credential", "auth")  # parts of names


class Arguments:
    """SGLang's arguments, as attributes: what SGLang decided, not what its user typed.

    - values: of every argument of this release, by name.
    - defaults: likewise. An argument that has to be given has a default that equals no value.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.values = values
        self.defaults = defaults

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"SGLang has no argument {name}") from None

    def is_changed(self, name: str) -> bool:
        """Whether the value is another one than the default. All empty values are the same."""
        value, default = (texts.plain(of[name]) for of in (self.values, self.defaults))
        return bool(value != default and not (value in _EMPTY and default in _EMPTY))


def decided() -> Arguments:
    """The arguments of this process. Since SGLang 0.5.18 `get_server_args()` has what the user
    typed, and `config_leaf` what is in effect."""
    from sglang.srt import runtime_context

    server_args = runtime_context.get_server_args()
    read = getattr(runtime_context.get_context(), "config_leaf", None)
    if read is None:
        read = functools.partial(getattr, server_args)
    fields = _fields(type(server_args))
    return Arguments({each.name: read(each.name) for each in fields}, dict(_defaults(fields)))


def _fields(kind: type) -> Sequence[Any]:
    """The fields of ServerArgs: a dataclass until SGLang 0.5.19, a Struct of msgspec since then."""
    from sglang.srt.arg_groups import arg_utils

    if hasattr(arg_utils, "record_fields"):
        return tuple(arg_utils.record_fields(kind))
    return dataclasses.fields(kind)


def _defaults(fields: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """A field without a default has a marker in its place, which equals no value."""
    for each in fields:
        factory = each.default_factory
        yield each.name, factory() if callable(factory) else each.default


def changed(server_args: Arguments, field: str) -> dict[str, Any]:
    """The arguments of a field of the key whose values are not their default, as plain data. SGLang
    fills in what its user left open, so most backends are among them."""
    return {
        name: texts.plain(server_args.values[name])
        for name in TABLE[field]
        if name in server_args.values and server_args.is_changed(name)
    }


def others(server_args: Arguments) -> dict[str, Any]:
    """Likewise the arguments that gpuwm does not know: they may change weights. Everybody who may
    see the version can read its key, so of a secret there is only a digest."""
    known = {name for names in TABLE.values() for name in names}
    found = {}
    for name in server_args.values:
        is_harmless = name.startswith("_") or any(
            fnmatchcase(name, glob) for glob in harmless.ARGUMENTS
        )
        if name in known or is_harmless or not server_args.is_changed(name):
            continue
        value = texts.plain(server_args.values[name])
        secret = any(word in name for word in _SECRET)
        found[name] = texts.digest(value) if secret else value
    return found


def _is_harmless(variable: str) -> bool:
    return any(word in variable for word in harmless.VARIABLES)


_OTHERS = ("CK_MOE",)  # variables without SGLang's prefix that choose how weights lie


def environment() -> str:
    """The environment variables that count, as a field of the key."""
    from sglang.srt import environ

    found = {}
    for name, variable in sorted(vars(type(environ.envs)).items()):
        if not isinstance(variable, environ.EnvField) or not variable.is_set():
            continue
        if _is_harmless(name):
            continue
        if (value := variable.get()) != variable._resolve_default():
            found[name] = texts.plain(value)
    # SGLang reads some variables that are not among these.
    for name, value in os.environ.items():
        known = hasattr(type(environ.envs), name) or _is_harmless(name)
        if not known and (name.startswith(("SGLANG_", "SGL_")) or name in _OTHERS):
            found[name] = value
    shown = (f"{name}={value}" for name, value in sorted(found.items()))
    return ", ".join(shown) or "defaults"
