"""What a library of models gives the sweep: names, and for each name ways to make it small."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

Inputs = dict[str, Any]


class Recipe(Protocol):
    """Goes to the other process by pickle, and makes the same model there."""

    @property
    def rule(self) -> str: ...

    def make(self) -> nn.Module: ...


@dataclasses.dataclass(frozen=True)
class Library:
    """recipes: in the order in which they are tried. inputs: of a module, likewise. parts: modules
    of a model that have inputs of their own, the model first. one_of_each_file: names that stand
    for all."""

    names: Callable[[], list[str]]
    recipes: Callable[[str], Iterator[Recipe]]
    inputs: Callable[[nn.Module], Iterator[Inputs]]
    parts: Callable[[nn.Module], Iterator[tuple[str, nn.Module]]]
    release: str = ""
    one_of_each_file: Callable[[], list[str]] = list


def library(name: str) -> Library:
    """By its name. Only the library that is asked for is imported."""
    found: Library = importlib.import_module(f"{__package__}.{name}_models").LIBRARY
    return found


def bytes_of(model: nn.Module) -> int:
    """Of parameters and buffers."""
    tensors = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return sum(each.numel() * each.element_size() for each in tensors.values())


def stir(model: nn.Module) -> None:
    """Moves every value of floating point a little, so that no tensor is as a constructor makes it:
    what a version loses shows. Buffers grow, since some are variances."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape) * 0.02
                parameter.copy_(torch.nan_to_num(parameter, 0.0, 1.0, -1.0) + noise)
        kept = model.state_dict(keep_vars=True)
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point() and name in kept:
                buffer.copy_(
                    torch.nan_to_num(buffer, 0.0, 1.0, -1.0) + torch.rand(buffer.shape) * 0.01
                )
