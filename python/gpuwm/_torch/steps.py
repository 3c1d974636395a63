"""The steps of which binding a model consists. Each gives one tensor object other memory or other
values, and can be undone."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from . import guards, init
from .places import Place


class Step(Protocol):
    """Changes one parameter, buffer or extra state. undo() is called only after do()."""

    @property
    def name(self) -> str: ...
    def do(self) -> None: ...
    def undo(self) -> None: ...


class Swap:
    """Gives a tensor object the content of a new tensor; it stays the same object."""

    __slots__ = ("_new", "_tensor", "name")

    def __init__(self, place: Place, new: torch.Tensor) -> None:
        self.name = place.name
        self._tensor = place.tensor
        self._new = new

    def do(self) -> None:
        init.swap(self._tensor, self._new)

    undo = do


class SetData:
    """Sets the memory of a tensor that others hold or refer to weakly. Both are on the same
    device."""

    def __init__(self, place: Place, new: torch.Tensor) -> None:
        self.name = place.name
        self._tensor: Any = place.tensor
        self._new = (type(new), torch.Tensor.detach(new), False)

    def do(self) -> None:
        old = torch.Tensor.detach(self._tensor)
        self._old = (type(self._tensor), old, self._tensor.requires_grad)
        self._become(*self._new)

    def undo(self) -> None:
        self._become(*self._old)

    def _become(self, kind: type, memory: torch.Tensor, requires_grad: bool) -> None:
        tensor = self._tensor
        tensor.__class__ = guards.kind_of(tensor, False)
        tensor.data = memory
        tensor.requires_grad_(requires_grad)
        tensor.__class__ = kind


class Fill:
    """Copies values into a buffer, which keeps its memory, because others may have views of it."""

    def __init__(self, place: Place, source: torch.Tensor) -> None:
        self.name = place.name
        self._buffer = place.tensor
        self._source = source

    def do(self) -> None:
        self._tensor = torch.Tensor.detach(self._buffer)
        self._old = self._tensor.clone()
        self._tensor.copy_(self._source)

    def undo(self) -> None:
        self._tensor.copy_(self._old)
