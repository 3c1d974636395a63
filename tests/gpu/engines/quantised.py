"""Small checkpoints in the formats of quantised models, with random weights, and their parts.

The integers and floats are drawn in the format itself: no quantiser is needed, and each bit of a
packed tensor counts in the answers. Names and layouts are those of vLLM's own loaders: GPTQ and
AWQ as AutoGPTQ and AutoAWQ write them, the rest as compressed-tensors 0.17 does."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from processes import Failed
from running import Run

GROUP = 128  # values of one scale along a row, where the format leaves it open
BLOCK = 128  # of fp8 with scales by blocks, both ways
STD = 0.02  # about that of a weight, as transformers draws them


def whole(bits: int, **scheme: Any) -> dict[str, Any]:
    """What compressed-tensors says of weights that are integers."""
    return {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, **scheme}


def floats(bits: int, **scheme: Any) -> dict[str, Any]:
    return {**whole(bits, **scheme), "type": "float"}


def by_token(weights: dict[str, Any]) -> dict[str, Any]:
    return {**weights, "strategy": "token", "dynamic": True}


def compressed(
    form: str, weights: dict[str, Any], taken: dict[str, Any] | None = None
) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": taken}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def integers(*shape: int) -> Any:
    """Words of 32 bits, all of them random."""
    import torch

    return torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int64).to(torch.int32)


def bytes_of(*shape: int) -> Any:
    import torch

    return torch.randint(0, 256, shape, dtype=torch.uint8)


def scales(*shape: int, around: float) -> Any:
    import torch

    return (around * (0.5 + torch.rand(*shape))).to(torch.bfloat16)


def fp8(*shape: int) -> Any:
    import torch

    return torch.randn(*shape).to(torch.float8_e4m3fn)


def gptq(out: int, width: int) -> dict[str, Any]:
    import torch

    return {
        "qweight": integers(width // 8, out),
        "qzeros": torch.full((width // GROUP, out // 8), 0x77777777, dtype=torch.int32),
        "scales": scales(width // GROUP, out, around=STD / 4),
        "g_idx": torch.arange(width, dtype=torch.int32) // GROUP,
    }


def awq(out: int, width: int) -> dict[str, Any]:
    return {
        "qweight": integers(width, out // 8),
        "qzeros": integers(width // GROUP, out // 8),
        "scales": scales(width // GROUP, out, around=STD / 4),
    }


def w4a16(out: int, width: int) -> dict[str, Any]:
    import torch

    return {
        "weight_packed": integers(out, width // 8),
        "weight_scale": scales(out, width // GROUP, around=STD / 4),
        "weight_shape": torch.tensor([out, width]),
    }


def w8a8(out: int, width: int) -> dict[str, Any]:
    import torch

    weight = torch.randint(-127, 128, (out, width), dtype=torch.int8)
    return {"weight": weight, "weight_scale": scales(out, 1, around=STD / 64)}


def fp8_rows(out: int, width: int) -> dict[str, Any]:
    return {"weight": fp8(out, width), "weight_scale": scales(out, 1, around=STD)}


def fp8_blocks(out: int, width: int) -> dict[str, Any]:
    scale = scales(-(-out // BLOCK), -(-width // BLOCK), around=STD).float()
    return {"weight": fp8(out, width), "weight_scale_inv": scale}


def nvfp4(out: int, width: int) -> dict[str, Any]:
    import torch

    return {
        "weight_packed": bytes_of(out, width // 2),
        "weight_scale": (64 * (1 + torch.rand(out, width // 16))).to(torch.float8_e4m3fn),
        "weight_global_scale": torch.tensor([64 * 3 / STD]),
    }


def mxfp4(out: int, width: int) -> dict[str, Any]:
    import torch

    # Powers of two, as 8 bits of exponent: 2^-7 and 2^-8.
    scale = torch.randint(119, 121, (out, width // 32), dtype=torch.uint8)
    return {"weight_packed": bytes_of(out, width // 2), "weight_scale": scale}


GROUPED = {"strategy": "group", "group_size": GROUP}
CHANNEL = {"strategy": "channel"}
FORMATS: dict[str, tuple[Callable[[int, int], dict[str, Any]], dict[str, Any]]] = {
    "gptq": (
        gptq,
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True},
    ),
    "awq": (
        awq,
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
        },
    ),
    "w4a16": (w4a16, compressed("pack-quantized", whole(4, **GROUPED))),
    "w8a8": (
        w8a8,
        compressed("int-quantized", whole(8, **CHANNEL), by_token(whole(8))),
    ),
    "fp8-rows": (
        fp8_rows,
        compressed("float-quantized", floats(8, **CHANNEL), by_token(floats(8))),
    ),
    "fp8-blocks": (
        fp8_blocks,
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK],
        },
    ),
    "nvfp4": (
        nvfp4,
        compressed("nvfp4-pack-quantized", floats(4, strategy="tensor_group", group_size=16)),
    ),
    "mxfp4": (
        mxfp4,
        compressed("mxfp4-pack-quantized", floats(4, strategy="group", group_size=32)),
    ),
}


def convert(plain: pathlib.Path, path: pathlib.Path, form: str) -> None:
    """The Llama in plain, each of its layers' matrices drawn anew in a format of FORMATS."""
    import torch
    from safetensors.torch import load_file, save_file

    draw, config = FORMATS[form]
    torch.manual_seed(sum(form.encode()))
    found: dict[str, Any] = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if ".layers." in name and tensor.dim() == 2:
            module = name.removesuffix("weight")
            found |= {module + part: drawn for part, drawn in draw(*tensor.shape).items()}
        else:
            found[name] = tensor
    path.mkdir(parents=True, exist_ok=True)
    save_file(found, path / "model.safetensors", metadata={"format": "pt"})
    about = json.loads((plain / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**about, "quantization_config": config}))
    (path / "complete").write_text("")


def integers_served(run: Run) -> None:
    served(run, ("gptq", "awq", "w4a16", "w8a8"))


def floats_served(run: Run) -> None:
    served(run, ("fp8-blocks", "nvfp4", "mxfp4", "fp8-rows"))


def served(run: Run, forms: tuple[str, ...]) -> None:
    """Eager. A format that vLLM itself can't serve here is told, with its words."""
    models = run.state / "models"
    run.head()
    for form in forms:
        model = f"tiny-{form}"
        if not (models / model / "complete").exists():
            convert(models / "tiny", models / model, form)
        ref = f"{model}@quantised"
        try:
            base = run.measured(run.engine(f"{form}-default", model), None)
        except Failed as failed:
            run.report.note(f"{form}: vLLM's own load fails: {failed}")
            run.kill_all()
            continue
        try:
            first = run.measured(run.engine(f"{form}-first", model, {"ref": ref}), base)
            run.way(first, "built")
            following = run.measured(run.engine(f"{form}-next", model, {"ref": ref}), base)
            run.way(following, "attached")
        except Failed as failed:
            run.report.check(False, f"{form}: {failed}")
            run.kill_all()
