"""The environment variables of vLLM on which the bytes, shapes or names of loaded weights depend.

The table was made by reading vllm/envs.py of vLLM 0.25.1 to 0.33.0 and every use of `envs.` in the
code that builds models, chooses kernels and post-processes weights. A variable of the table that
vLLM does not know is left out, so a table for several releases of vLLM does no harm.

A variable that is set and is neither here nor in `harmless.VARIABLES` counts too, and the log names
it: a newer vLLM or a plugin may read it.
"""

from __future__ import annotations

import logging
import os
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from . import harmless

log: logging.Logger = logging.getLogger("vllm.gpuwm")
_told: set[str] = set()


class Variable(NamedTuple):
    """default: that of vLLM 0.25.1 or, if that has none, of 0.33.0, as a Python value. why: what of
    the weights depends on the variable."""

    default: Any
    why: str


LAYOUT: dict[str, Variable] = {
    # These decide which modules, layers and parameters there are.
    "VLLM_PP_LAYER_PARTITION": Variable(None, "the layers that each pipeline rank has"),
    "VLLM_MLA_DISABLE": Variable(
        False, "MLA models are built with plain attention, no W_UV, W_UK_T"
    ),
    "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS": Variable(False, "shared experts are routed ones"),
    "VLLM_REPLICATE_EMBED": Variable(False, "every rank has the whole embedding"),
    "VLLM_DCP_Q_REPLICATE": Variable(False, "every rank has the whole projection of queries"),
    "VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT": Variable(False, "shared experts are cut, not copied"),
    "VLLM_STEP5_SHARD_SP_SHARED_EXPERT": Variable(False, "shared experts are cut, not copied"),
    "VLLM_DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION": Variable(
        False, "shared experts are not packed with routed ones"
    ),
    "VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS": Variable(False, "shared experts are mxfp4"),
    "VLLM_USE_HW_AGNOSTIC": Variable(False, "transformers' models get other layers"),
    "VLLM_PLE_CPU_OFFLOAD": Variable(True, "tables of n-grams lie on the host"),
    "VLLM_ENABLE_HPC_OPS": Variable(False, "modules that keep packed copies of weights"),
    # These decide which kernel a quantised linear layer gets. Each kernel repacks weights in its
    # own way.
    "VLLM_DISABLED_KERNELS": Variable([], "kernels that linear layers may not choose"),
    "VLLM_BATCH_INVARIANT": Variable(False, "linear layers, experts and attention choose others"),
    "VLLM_TEST_FORCE_FP8_MARLIN": Variable(False, "fp8 and fp4 weights are packed for Marlin"),
    "VLLM_MARLIN_INPUT_DTYPE": Variable(None, "Marlin packs weights for int8 or fp8 activations"),
    "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER": Variable(True, "FlashInfer takes block-scaled fp8"),
    "VLLM_USE_DEEP_GEMM": Variable(True, "DeepGEMM takes block-scaled fp8"),
    "VLLM_MOE_USE_DEEP_GEMM": Variable(True, "DeepGEMM takes block-scaled fp8 experts"),
    "VLLM_USE_DEEP_GEMM_E8M0": Variable(True, "DeepGEMM's scales are powers of two: requantised"),
    "VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES": Variable(True, "DeepGEMM's scales are padded"),
    "VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD": Variable(False, "emulated mxfp4 is stored as bfloat16"),
    "VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD": Variable(True, "emulated mxfp8 is stored as bfloat16"),
    "VLLM_HUMMING_ONLINE_QUANT_CONFIG": Variable(None, "what Humming quantises to as it loads"),
    "VLLM_HUMMING_INPUT_QUANT_CONFIG": Variable(None, "Humming packs for quantised activations"),
    "VLLM_HUMMING_USE_F16_ACCUM": Variable(False, "Humming packs for another accumulator"),
    "VLLM_HUMMING_MOE_GEMM_TYPE": Variable(None, "Humming packs experts for this kernel"),
    "VLLM_HAS_FLASHINFER_CUBIN": Variable(False, "FlashInfer is eligible without a download"),
    "VLLM_USE_TRITON_AWQ": Variable(False, "AWQ weights stay in the checkpoint's order"),
    # These decide which kernel experts get.
    "VLLM_USE_FLASHINFER_MOE_INT4": Variable(False, "int4 experts are shuffled for FlashInfer"),
    "VLLM_DEEPEPLL_NVFP4_DISPATCH": Variable(False, "nvfp4 experts choose another kernel"),
    "VLLM_B12X_MOE_FP4_FORCE_A16": Variable(False, "fp4 experts choose another kernel"),
    # These change values that post-processing computes or stores.
    "Q_SCALE_CONSTANT": Variable(200, "attention stores it as a tensor"),
    "K_SCALE_CONSTANT": Variable(200, "attention stores it as a tensor"),
    "V_SCALE_CONSTANT": Variable(100, "attention stores it as a tensor"),
    "VLLM_FLOAT32_MATMUL_PRECISION": Variable("highest", "products in float32 are rounded"),
    # CPUs.
    "VLLM_CPU_SGL_KERNEL": Variable(False, "linear layers and experts are packed for AMX"),
    "VLLM_CPU_INT4_W4A8": Variable(True, "int4 weights are packed for int8 activations"),
    "VLLM_ZENTORCH_WEIGHT_PREPACK": Variable(True, "linear layers are packed for zentorch"),
    # Intel's GPUs.
    "VLLM_XPU_FORCE_N_CONTIG_WEIGHT": Variable(False, "linear layers have other strides"),
    "VLLM_XPU_INC_WNA16_BACKEND": Variable("auto", "quantised weights are packed for this kernel"),
    # ROCm.
    "VLLM_ROCM_FP8_PADDING": Variable(True, "fp8 weights are padded, which changes strides"),
    "VLLM_ROCM_MOE_PADDING": Variable(True, "experts are padded, which changes strides"),
    "VLLM_ROCM_USE_AITER": Variable(False, "AITER's kernels shuffle weights"),
    "VLLM_ROCM_USE_AITER_LINEAR": Variable(True, "AITER's linear layers shuffle weights"),
    "VLLM_ROCM_USE_AITER_LINEAR_HIPBMM": Variable(False, "linear layers are shuffled for hipBMM"),
    "VLLM_ROCM_USE_AITER_MOE": Variable(True, "AITER's experts shuffle weights"),
    "VLLM_ROCM_USE_AITER_MOE_SITUV2": Variable("auto", "AITER interleaves mxfp4 experts"),
    "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": Variable(False, "AITER interleaves mxfp4 experts"),
    "AITER_SITUV2_A8W4": Variable(False, "AITER interleaves mxfp4 experts"),
    "VLLM_ROCM_MUSE_MOE_ONLINE_QUANT": Variable("", "experts are quantised to mxfp4 as they load"),
    "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4": Variable(None, "fp4 experts choose another kernel"),
    "VLLM_ROCM_USE_AITER_MLA": Variable(True, "MLA takes AITER's backend"),
    "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM": Variable(False, "fp4 weights are shuffled"),
    "VLLM_ROCM_USE_AITER_FP4BMM": Variable(True, "MLA's products are quantised to fp4"),
    "VLLM_ROCM_USE_AITER_FP8BMM": Variable(True, "MLA's products are quantised to fp8"),
    "VLLM_ROCM_USE_AITER_TRITON_GEMM": Variable(True, "linear layers keep the plain order"),
    "VLLM_ROCM_USE_SKINNY_GEMM": Variable(True, "linear layers choose another kernel"),
}


def changed() -> dict[str, Any]:
    """The variables that count and whose values are not the default, by name. A variable that
    nobody set has the default of this vLLM, whose version is another field of the key."""
    import vllm.envs as envs

    found: dict[str, Any] = {}
    for name, variable in LAYOUT.items():
        if name not in os.environ and name not in vars(envs):
            continue
        try:
            value = getattr(envs, name)
        except AttributeError:
            continue  # this release of vLLM has no such variable
        if value != variable.default:
            found[name] = value
    others = {name: value for name, value in os.environ.items() if _is_unknown(name)}
    _tell(sorted(others))
    return found | others


def is_known(name: str) -> bool:
    """Whether a variable is in one of the tables."""
    return name in LAYOUT or any(fnmatchcase(name, glob) for glob in harmless.VARIABLES)


def _is_unknown(name: str) -> bool:
    return name.startswith("VLLM_") and not is_known(name)


def _tell(names: list[str]) -> None:
    new = [name for name in names if name not in _told]
    _told.update(new)
    if new:
        log.warning(
            "gpuwm: weights may depend on environment variables that gpuwm does not know, so an "
            "engine shares weights only with engines that have the same values there: %s",
            ", ".join(new),
        )
