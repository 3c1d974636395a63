"""What a builder returns, as an image: published once, and made again by everybody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .. import errors, image, init
from ..image import shells
from ..mapping import Mapping as Attached

Globs = str | Sequence[str]


class Value(nn.Module):
    """Holds a result that is no module: a tensor, or a dict, list or tuple with tensors in it."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
        models = list(_models_in(value))
        if models:  # `image.module` makes them only if they are in the tree of modules
            self.models = nn.ModuleList(models)


def _models_in(value: Any) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        if shells.has_configuration(value):
            yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _models_in(each)


def holder(value: Any) -> nn.Module:
    """The module that is published for a result."""
    return value if isinstance(value, nn.Module) else Value(checked(value))


def checked(value: Any) -> Any:
    """Returns the value. Raises Invalid if a builder can't return such values."""
    if isinstance(value, nn.Module | torch.Tensor | dict | list | tuple):
        return value
    raise errors.Invalid(
        f"the builder returned a {type(value).__qualname__}",
        "return a module, a tensor, or a dict, list or tuple with tensors in it",
    )


def value_of(module: nn.Module) -> Any:
    return module.value if type(module) is Value else module


def attached(
    mapping: Attached, structure: Callable[[], Any] | None, private: Globs, guard: bool
) -> Any:
    """The result that lies in a version, in this process. structure: makes a result like it,
    without the values. None: the record says how."""
    if structure is None:
        return value_of(image.module(mapping, private=private, guard=guard))
    with init.empty_init():
        made = holder(structure())
    image.install(made, mapping, private=private, guard=guard)
    return value_of(made)
