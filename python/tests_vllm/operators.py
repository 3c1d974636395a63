"""vLLM's operators that post-processing calls, in plain torch, with the signatures of vLLM's
torch_bindings.cpp; and what vLLM expects of torch on a machine with a GPU."""

import torch

FP8 = torch.finfo(torch.float8_e4m3fn)
# Of vLLM's kernels: a row of zeros gets this scale instead of 0.
SMALLEST_SCALE = 1 / (FP8.max * 512)
_library: torch.library.Library | None = None
# Those that a pass of vLLM's compiler looks for in a graph. None is in the tests' graphs.
_LOOKED_FOR = (
    "rotary_embedding",
    "fused_add_rms_norm",
    "fused_add_rms_norm_static_fp8_quant",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm",
    "rms_norm_static_fp8_quant",
    "silu_and_mul",
    "silu_and_mul_quant",
    "fused_qk_norm_rope",
)


def define() -> None:
    """Defines torch.ops._C's operators, once a process."""
    global _library
    if _library is not None:
        return
    if not torch.accelerator.is_available():
        torch.accelerator.empty_cache = lambda: None  # which raises without an accelerator
    # vLLM asks the processor, not torch.ops, whether it has operators for these instructions.
    for instructions in ("amx_tile", "amx_fp16", "avx512_bf16"):
        setattr(torch.cpu, f"_is_{instructions}_supported", lambda: False)
    _library = torch.library.Library("_C", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema, function in (
        (
            "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale, "
            "int[]? group_shape=None) -> ()",
            _static,
        ),
        (
            "dynamic_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale) -> ()",
            _dynamic,
        ),
        (
            "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, "
            "Tensor? scale_ub) -> ()",
            _dynamic_per_token,
        ),
        (
            "prepack_moe_weight(Tensor weight, Tensor(a1!) packed_weight, str isa) -> ()",
            _prepack_experts,
        ),
    ):
        _library.define(schema)  # type: ignore[no-untyped-call]
        _library.impl(schema.partition("(")[0], function, "CPU")  # type: ignore[no-untyped-call]


def define_for_compiling() -> None:
    """Call it when the model is there: vLLM chooses kernels by what is defined."""
    assert _library is not None
    for name in _LOOKED_FOR:
        _library.define(f"{name}() -> ()")  # type: ignore[no-untyped-call]


def _static(
    result: torch.Tensor,
    values: torch.Tensor,
    scale: torch.Tensor,
    group_shape: list[int] | None = None,
) -> None:
    if scale.numel() != 1:
        raise NotImplementedError("only one scale for all values is stubbed here")
    result.copy_((values.float() / scale).clamp(FP8.min, FP8.max))


def _dynamic(result: torch.Tensor, values: torch.Tensor, scale: torch.Tensor) -> None:
    scale.fill_(max(values.abs().max().item() / FP8.max, SMALLEST_SCALE))
    _static(result, values, scale)


def _dynamic_per_token(
    result: torch.Tensor, values: torch.Tensor, scale: torch.Tensor, scale_ub: torch.Tensor | None
) -> None:
    largest = values.float().abs().amax(dim=-1, keepdim=True)
    if scale_ub is not None:
        largest = largest.clamp(max=scale_ub.item())
    scale.copy_((largest / FP8.max).clamp(min=SMALLEST_SCALE))
    result.copy_((values.float() / scale).clamp(FP8.min, FP8.max))


def _prepack_experts(weight: torch.Tensor, packed_weight: torch.Tensor, isa: str) -> None:
    """vLLM reorders a matrix for the processor's instructions; that it is done once is what counts
    here, so any other order will do, if doing it twice gives yet another one."""
    packed_weight.copy_(weight.roll(1, -1))
