"""What the tests of builders share."""

from __future__ import annotations

from typing import Any

import torch
from conftest import DEVICE
from torch import nn

import gpuwm
import gpuwm.builders


class Net(nn.Module):
    seen: torch.Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, hidden)
        self.register_buffer("seen", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(x)
        return made


def net(hidden: int) -> Net:
    return Net(hidden).to(DEVICE).eval()


class Counted:
    """A function that counts its calls."""

    def __init__(self, make: Any) -> None:
        self.make, self.calls = make, 0

    def builder(self, **options: Any) -> Any:
        def build(hidden: int = 4, kind: str = "a") -> Any:
            self.calls += 1
            return self.make(hidden)

        return gpuwm.builder(**options)(build)
