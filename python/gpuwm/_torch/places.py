"""The parameters and buffers of a model: each tensor once, with all its names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import nn

from .._c import lib


@dataclasses.dataclass(slots=True)
class Place:
    """A parameter or buffer. names: its names in the model, in the order of state_dict(). owners:
    for each name the module that has it, and the attribute."""

    tensor: torch.Tensor
    is_buffer: bool
    persistent: bool
    names: list[str]
    owners: list[tuple[nn.Module, str]]

    @property
    def name(self) -> str:
        return self.names[0]


def modules_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """All modules with the prefix of their names, in the order of state_dict(). A module that is in
    the model twice comes twice."""
    if not isinstance(model, nn.Module):
        raise lib.wrong("model", model, "a module of torch")
    found: list[tuple[str, nn.Module]] = []
    stack = [("", model)]
    while stack:
        prefix, module = stack.pop()
        found.append((prefix, module))
        if module._modules:
            children = [(f"{prefix}{k}.", m) for k, m in module._modules.items() if m is not None]
            stack.extend(reversed(children))
    return found


def places(modules: Iterable[tuple[str, nn.Module]]) -> list[Place]:
    """Places in the order of state_dict(). Tied names, and those of a module that comes twice, are
    one place with several names. modules: the result of `modules_of`."""
    found: dict[int, Place] = {}
    for prefix, module in modules:
        unsaved = module._non_persistent_buffers_set
        for is_buffer, tensors in ((False, module._parameters), (True, module._buffers)):
            for key, tensor in tensors.items():
                if tensor is None:
                    continue
                name, owner = prefix + key, (module, key)
                persistent = not is_buffer or key not in unsaved
                place = found.get(id(tensor))
                if place is None:
                    found[id(tensor)] = Place(tensor, is_buffer, persistent, [name], [owner])
                else:
                    place.persistent |= persistent
                    place.names.append(name)
                    place.owners.append(owner)
    return list(found.values())
