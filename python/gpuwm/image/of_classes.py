"""Tensors that hang on the classes of modules. All modules of a class in a process have them
together, so no image carries them: it says which they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from . import digests
from .kinds import class_name
from .slots import ITEM, Ignored, step

_DIGEST = 32  # hexadecimal digits of a SHA-256


def described(modules: Mapping[str, nn.Module], ignored: Ignored) -> dict[str, str]:
    """What each tensor on a class of the modules is, by the class's name and its path there.
    modules: by their paths. A name that an object has itself hides that of its class."""
    tensors: dict[str, torch.Tensor] = {}
    on_class: dict[type, list[tuple[str, str, torch.Tensor]]] = {}
    for name, module in modules.items():
        kind = type(module)
        if kind not in on_class:
            on_class[kind] = list(_of_class(kind))
        for key, path, tensor in on_class[kind]:
            if not _hides(module, key) and not ignored.fits(name, key):
                tensors[path] = tensor
    return {path: _said(tensor) for path, tensor in tensors.items()}


def problems(
    published: Mapping[str, str],
    others: Mapping[str, str],
    where: tuple[str, str] = ("in the version", "here"),
) -> Iterator[str]:
    """A line for each tensor that is another one, or in one place only. where: words for both."""
    for path in sorted(published.keys() | others.keys()):
        one, other = (each.get(path, "no tensor") for each in (published, others))
        if one != other:
            yield f"{path}: {one} {where[0]}, {other} {where[1]}"


def _of_class(kind: type) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The name that reads each tensor, its path, and the tensor."""
    seen: set[str] = set()
    for base in kind.__mro__:
        for key, value in list(vars(base).items()) if base is not nn.Module else ():
            if key not in seen:
                seen.add(key)
                for path, tensor in _tensors(f"{class_name(base)}.{key}", value, set()):
                    yield key, path, tensor


def _tensors(path: str, value: Any, above: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """The value, or what is in it if it is a container of Python."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict | list | tuple) and id(value) not in above:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in list(items):
            yield from _tensors(step(path, ITEM, key), each, above | {id(value)})


def _hides(module: nn.Module, key: str) -> bool:
    return any(
        key in named
        for named in (module.__dict__, module._parameters, module._buffers, module._modules)
    )


def _said(tensor: torch.Tensor) -> str:
    digest = digests.of(tensor) if digests.has_bytes(tensor) else class_name(type(tensor))
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {list(tensor.size())} {digest[:_DIGEST]}"
