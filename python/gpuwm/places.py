"""The parameters and buffers of a model: each tensor once, with all its names."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn


@dataclasses.dataclass(slots=True)
class Place:
    """A parameter or buffer. names: where the model has it, first as state_dict() would; owners:
    the modules that have it, and as what, one for each name."""

    tensor: torch.Tensor
    is_buffer: bool
    persistent: bool
    names: list[str] = dataclasses.field(default_factory=list)
    owners: list[tuple[nn.Module, str]] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return self.names[0]


def places(model: nn.Module) -> list[Place]:
    """In the order of state_dict(). Tied names, and modules that are in the model twice, are one
    place with several names."""
    found: dict[int, Place] = {}

    def add(name: str, module: nn.Module, key: str, tensor: torch.Tensor, is_buffer: bool) -> None:
        place = found.get(id(tensor))
        persistent = not is_buffer or key not in module._non_persistent_buffers_set
        if place is None:
            place = found[id(tensor)] = Place(tensor, is_buffer, persistent)
        place.persistent |= persistent
        place.names.append(name)
        place.owners.append((module, key))

    stack = [("", model)]
    while stack:
        prefix, module = stack.pop()
        for key, parameter in module._parameters.items():
            if parameter is not None:
                add(prefix + key, module, key, parameter, False)
        for key, buffer in module._buffers.items():
            if buffer is not None:
                add(prefix + key, module, key, buffer, True)
        children = [(f"{prefix}{k}.", m) for k, m in module._modules.items() if m is not None]
        stack.extend(reversed(children))
    return list(found.values())
