"""Models with faults, by which the sweep itself is tested."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import torch
from torch import nn

from .recipes import Inputs, Library


class Whole(nn.Module):
    """state_dict() has all that it computes with."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"made": self.norm(self.inner(x))}


class Lossy(Whole):
    """It computes with a random tensor that nobody stores."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [torch.randn(4)]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"made": self.inner(x) + self.hidden[0]}


class Refused(Whole):
    """gpuwm has no such dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("odd", torch.zeros(2, dtype=torch.complex128))


class Deadly(Whole):
    """It ends its process."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        os._exit(3)


class Endless(Whole):
    """It has no answer."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        while True:
            x = x + 1


class Unrun(Whole):
    """Nobody knows what it takes."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        raise ValueError("not like this")


class Large(nn.Module):
    """No rule makes it small."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1 << 26))


KINDS: dict[str, type[nn.Module]] = {
    kind.__name__: kind for kind in (Whole, Lossy, Refused, Deadly, Endless, Unrun, Large)
}


@dataclasses.dataclass(frozen=True)
class Trial:
    name: str
    rule: str = "as it is"

    def make(self) -> nn.Module:
        return KINDS[self.name]()


def recipes(name: str) -> Iterator[Trial]:
    yield Trial(name)


def inputs(model: nn.Module) -> Iterator[Inputs]:
    yield {"x": torch.randn(2, 4)}


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield "", model


LIBRARY = Library(lambda: list(KINDS), recipes, inputs, parts)
