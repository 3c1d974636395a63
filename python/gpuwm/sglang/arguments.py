"""The arguments and environment variables of SGLang on which loaded weights may depend.

The tables were made by reading SGLang 0.5.16: every use of `get_server_args()` in the code that
builds models and layers, chooses kernels and post-processes weights. An argument that a release of
SGLang does not have is left out.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from ..engines import texts

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
    ),
    "linear": (
        *("fp8_gemm_runner_backend", "fp4_gemm_runner_backend", "bf16_gemm_backend"),
        *("enable_fp32_lm_head", "enable_dp_lm_head", "enable_tf32_matmul", "torchao_config"),
        *("modelopt_quant", "modelopt_checkpoint_restore_path", "quantize_and_serve"),
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
        "enable_single_batch_overlap",
    ),
    "parallel": (
        *("enable_dp_attention", "moe_dense_tp_size", "enable_attn_tp_input_scattered"),
        *("disable_attn_tp_gather", "enable_prefill_cp", "cp_strategy", "prefill_cp_mode"),
        *("enable_prefill_context_parallel", "enable_dsa_prefill_context_parallel"),
        *("dsa_prefill_cp_mode", "enable_dsa_cache_layer_split", "mm_enable_dp_encoder"),
    ),
    "role": (
        *("encoder_only", "language_only", "is_embedding", "enable_multimodal"),
        *("enable_return_routed_experts", "dllm_algorithm", "enable_mis"),
        *("speculative_algorithm", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        *("speculative_token_map", "enable_multi_layer_eagle", "speculative_attention_mode"),
    ),
}

# Environment variables that say how SGLang logs, is tested, schedules, transfers KV caches or finds
# its files. All others count that SGLang knows and whose value is not their default. These words
# are parts of names.
_WITHOUT_WEIGHTS = (
    *("_LOG_", "_DEBUG_", "_TEST_", "_CI", "_PROFILE", "_PROFILER_", "_TRACE", "_CANARY_"),
    *("DISAGG", "HICACHE", "MOONCAKE", "_MORI_", "HUGEPAGE", "_ENCODER_", "_STAGING_", "_EXA_"),
    *("EXA_", "_PORT", "_HOST", "_TIMEOUT", "_RETRACT", "_SCHEDULER_", "_PREFILL_DELAYER_"),
    *("_CACHE_DIR", "_PLUGINS", "_PLATFORM", "_METRICS_", "_GRPC_", "_OTLP_", "_IPC", "_NUMA_"),
    *("_SIMULATE_ACC", "_CUDA_COREDUMP", "_CPU_AFFINITY", "_INIT_METHOD", "_MESSAGE_QUEUE_"),
    *("_RADIX_", "_MEM_CHECK", "_INBALANCE_", "_PYSPY_", "_TOOL", "_WARMUP", "_USE_CPU_ENGINE"),
    *("_EMPTY_CACHE", "_IS_FIRST_RANK", "_NEW_TOKEN", "SGLANG_ENABLE_TORCH_COMPILE"),
    *("_OUTLINES_", "_CUSTOM_ALL_REDUCE", "_BREAKABLE_CUDA_GRAPH", "_CUDA_GRAPH_"),
    *("SGLANG_RUN_ID", "SGLANG_DP_RANK"),  # of one run, and of one replica
    *("_BLOCK_NONZERO_RANK", "_LOCAL_IP_", "_GIT_COMMIT"),
    *("_LOGGING_", "_OLLAMA_", "_WORKERS", "_NSYS_", "_RINGBUFFER_", "_DETOKENIZER_"),
)


def changed(server_args: Any, field: str) -> dict[str, Any]:
    """The arguments of a field of the key whose values are not their default, as plain data. SGLang
    fills in what its user left open, so most backends are among them."""
    defaults = {each.name: each.default for each in dataclasses.fields(server_args)}
    found = {
        name: texts.plain(getattr(server_args, name))
        for name in TABLE[field]
        if name in defaults and getattr(server_args, name) != defaults[name]
    }
    return {name: value for name, value in found.items() if value not in (None, "", {}, [])}


_OTHERS = ("CK_MOE",)  # variables without SGLang's prefix that choose how weights lie


def environment() -> str:
    """The environment variables that count, as a field of the key."""
    from sglang.srt import environ

    found = {}
    for name, variable in sorted(vars(type(environ.envs)).items()):
        if not isinstance(variable, environ.EnvField) or not variable.is_set():
            continue
        if any(word in name for word in _WITHOUT_WEIGHTS):
            continue
        if (value := variable.get()) != variable._resolve_default():
            found[name] = texts.plain(value)
    # SGLang reads some variables that are not among these.
    for name, value in os.environ.items():
        known = hasattr(type(environ.envs), name) or any(word in name for word in _WITHOUT_WEIGHTS)
        if not known and (name.startswith(("SGLANG_", "SGL_")) or name in _OTHERS):
            found[name] = value
    shown = (f"{name}={value}" for name, value in sorted(found.items()))
    return ", ".join(shown) or "defaults"
