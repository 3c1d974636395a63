"""Kernels of SGLang that post-processing calls, in plain torch."""

from __future__ import annotations

import torch

FP8 = torch.finfo(torch.float8_e4m3fn)


def define() -> None:
    """After SGLang was imported."""
    from sglang.kernels.ops.quantization import fp8_kernel
    from sglang.srt.layers.quantization import fp8

    fp8._is_cpu = False  # on a CPU, SGLang's own code for fp8 needs AMX
    fp8_kernel.sgl_per_tensor_quant_fp8 = _per_tensor


def _per_tensor(
    values: torch.Tensor, result: torch.Tensor, scale: torch.Tensor, is_static: bool
) -> None:
    if not is_static:
        scale.fill_(values.abs().max().item() / FP8.max)
    result.copy_((values.float() / scale).clamp(FP8.min, FP8.max))
