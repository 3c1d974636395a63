"""What a builder returns, as an image: published once, and made again by everybody else."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from .. import errors, image
from .._mapping import Mapping as Attached
from .._torch import init
from .._torch.build import made_empty
from ..image.slots import put, slots

Globs = str | Sequence[str]


class Value(nn.Module):
    """Holds a result that is no module: a tensor, or a dict, list or tuple with tensors in it.

    Modules in it are modules of this one too, so that they are treated as modules are everywhere:
    mapping_of finds them, constructors of transformers' models are called, and `private` names
    their parameters: "net.*" for the result {"net": module}, "0.*" for (module, …).
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
        for path, module in _modules_in(value, ()):
            name = re.sub(r"\W", "_", "_".join(path)) or "_"
            while hasattr(self, name):
                name += "_"
            self.add_module(name, module)


def _modules_in(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], nn.Module]]:
    if isinstance(value, nn.Module):
        yield path, value
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            yield from _modules_in(each, (*path, str(key)))


def holder(value: Any) -> nn.Module:
    """The module that is published for a result."""
    return value if isinstance(value, nn.Module) else Value(checked(value))


def checked(value: Any) -> Any:
    """Returns the value. Raises Invalid if a builder can't return such values."""
    if isinstance(value, nn.Module | torch.Tensor | dict | list | tuple):
        return value
    raise errors.Invalid(
        f"the builder returned an object of the type {type(value).__qualname__}",
        "return a module, a tensor, or a dict, list or tuple with tensors in it",
    )


def value_of(module: nn.Module) -> Any:
    return module.value if type(module) is Value else module


def without_inference(value: Any) -> Any:
    """The value with ordinary tensors in place of those that were made in torch's inference mode,
    which can't get other memory. They have the same classes, and the same attributes."""
    ordinary: dict[int, torch.Tensor] = {}

    def of(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_inference():
            return tensor
        if id(tensor) not in ordinary:
            made = tensor.detach().clone()
            if init.is_plain(tensor):
                made = init.of_class(type(tensor), made)
            elif isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, False)
            ordinary[id(tensor)] = made
            for slot in slots(tensor):
                put(made, slot.kind, slot.key, of(slot.value))
        return ordinary[id(tensor)]

    leaves, structure = _pytree.tree_flatten(value)
    for module in (
        each for leaf in leaves if isinstance(leaf, nn.Module) for each in leaf.modules()
    ):
        for held in (module._parameters, module._buffers, module.__dict__):
            held.update((name, of(tensor)) for name, tensor in list(held.items()))
    found = [of(leaf) for leaf in leaves]
    changed = any(new is not old for new, old in zip(found, leaves, strict=True))
    return _pytree.tree_unflatten(found, structure) if changed else value


@contextlib.contextmanager
def ordinary_mode() -> Iterator[None]:
    """Tensors that are made in it are ordinary ones, also if the caller is in inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def attached(
    mapping: Attached, structure: Callable[[], Any] | None, private: Globs, guard: bool
) -> Any:
    """The result that lies in a version, in this process. structure: makes a result like it,
    without the values. None: the record says how."""
    if structure is None:
        return value_of(image.module(mapping, private=private, guard=guard))
    # install gives the module all tensors of the version, whatever `structure` made of parameters
    made = holder(made_empty(structure, lambda _: None, stacklevel=3))
    image.install(made, mapping, private=private, guard=guard)
    return value_of(made)
