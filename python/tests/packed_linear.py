"""A way to quantise that transformers learns here: its layers have what those of GPTQ have, packed
integers with scales and zeros for groups of columns, and are changed once more after loading."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

quantizers: Any = importlib.import_module("transformers.quantizers")
settings: Any = importlib.import_module("transformers.utils.quantization_config")

GROUP = 16
CONFIG = {"quant_method": "packed", "group_size": GROUP}


def pack(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Four bits for each value, eight values in an integer, along the columns."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // GROUP, GROUP)
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    scales = (high - low) / 15
    codes = ((groups - low) / scales).round().long().reshape(rows, columns // 8, 8)
    packed = (codes << torch.arange(0, 32, 4)).sum(2)
    packed = torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)
    return {
        "qweight": packed.t().contiguous(),
        "scales": scales.squeeze(2),
        "zeros": low.squeeze(2),
        "g_idx": torch.arange(columns, dtype=torch.int32) // GROUP,
    }


class PackedLinear(nn.Module):
    """qweight comes transposed, as kernels don't want it."""

    qweight: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    g_idx: torch.Tensor

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        empty = pack(torch.arange(rows * columns).reshape(rows, columns).float())
        for name, tensor in empty.items():
            self.register_buffer(name, tensor)
        self.is_ready = False

    def make_ready(self) -> None:
        self.qweight = self.qweight.t().contiguous()
        self.is_ready = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.is_ready
        codes = (self.qweight[..., None] >> torch.arange(0, 32, 4)) & 15
        values = codes.reshape(len(codes), -1) * self.scales[:, self.g_idx.long()]
        return x @ (values + self.zeros[:, self.g_idx.long()]).t().to(x.dtype)


@quantizers.auto.register_quantization_config("packed")
class PackedConfig(settings.QuantizationConfigMixin):  # type: ignore[misc]
    def __init__(self, group_size: int = GROUP, **_: Any) -> None:
        self.quant_method, self.group_size = "packed", group_size


@quantizers.auto.register_quantizer("packed")
class PackedQuantizer(quantizers.base.HfQuantizer):  # type: ignore[misc]
    requires_calibration = True

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> None:
        for name, module in list(model.named_modules()):
            if name.endswith("proj"):
                above, _, key = name.rpartition(".")
                made = PackedLinear(module.in_features, module.out_features)
                setattr(model.get_submodule(above), key, made)

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> None:
        for module in model.modules():
            if isinstance(module, PackedLinear):
                module.make_ready()

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False
