"""Modules that save more than their parameters and buffers."""

from __future__ import annotations

import collections
import enum
import io
from typing import Any

import torch
from torch import nn


def _random(seed: int) -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))


class Int8(nn.Module):
    """Its scale is a plain attribute, which it saves and loads by itself."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        weight = _random(seed)
        self.scale = weight.abs().amax(1) / 127
        packed = (weight / self.scale[:, None]).round().to(torch.int8)
        self.weight = nn.Parameter(packed, requires_grad=False)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = self.scale

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.scale = state_dict.pop(prefix + "scale").clone()
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight.float() * self.scale[:, None]).t()


class Quantised(nn.Module):
    """It keeps numbers, and saves tensors that it makes of them, as torch's quantised layers do."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_random(seed).mul(10).round().to(torch.int8), False)
        self.scale, self.zero_point = seed / 10, seed

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)
        destination[prefix + "dtype"] = torch.qint8


class Format(enum.Enum):
    E4M3 = 1
    HYBRID = 2


class Recipe(nn.Module):
    """Its outputs depend on its extra state, which may be anything."""

    def __init__(self, seed: int, state: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        nn.init.constant_(self.inner.weight, seed)
        self.state = state

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        if state == "refuse":
            raise ValueError("no such state")
        self.state = state


STATES: dict[str, Any] = {
    "none": None,
    "bytes": b"\0\xff amax",
    "plain": {"scale": 0.5, "history": [1.0, float("inf")], "format": Format.HYBRID, 3: (1, "x")},
    "sets": {"names": {"b", "a"}, "frozen": frozenset((1, 2)), "complex": 1 + 2j},
    "tensor": torch.arange(6, dtype=torch.uint8),
    "tensors": {
        "amax": torch.arange(6.0).view(2, 3) / 7,
        "half": torch.ones(2, dtype=torch.bfloat16),
    },
    "empty": torch.empty(0, 3),
    "stream": io.BytesIO(b"pickled"),
    "ordered": collections.OrderedDict(b=torch.zeros(2), a=[1]),  # as another module's state_dict()
}


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return bool(one.dtype == other.dtype and torch.equal(one, other))
    if isinstance(one, io.BytesIO):
        return bool(one.getvalue() == other.getvalue())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
