"""Changes a module so that all of it can be undone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .._torch import fit, init
from .graph import plain_class
from .slots import saved


class Journal:
    """What was changed in a module, and how to undo it.

    saves: whether `save` saves anything. exchanged: tensors with new contents, and what undoes each
    exchange.
    """

    def __init__(self) -> None:
        self.saves = True
        self.exchanged: list[tuple[torch.Tensor, Callable[[], None]]] = []
        self._saved: dict[int, tuple[Any, Callable[[], None]]] = {}

    def exchange(self, tensor: torch.Tensor, new: torch.Tensor) -> None:
        """Gives the tensor the new one's content. It stays the same object."""
        if fit.unswappable(tensor) is None:
            init.swap(tensor, new)
            self.exchanged.append((tensor, functools.partial(init.swap, tensor, new)))
            return
        undo = functools.partial(
            _become, tensor, type(tensor), torch.Tensor.detach(tensor), tensor.requires_grad
        )
        _become(tensor, type(new), new, False)
        self.exchanged.append((tensor, undo))

    def save(self, owner: Any) -> None:
        """Saves an owner before it changes. Once `saves` is False nothing is saved: what comes
        later was not the module's before."""
        if self.saves and id(owner) not in self._saved:
            self._saved[id(owner)] = owner, saved(owner)

    def undo(self) -> None:
        """Undoes all changes, the last one first."""
        for _, undo in reversed(self.exchanged):
            undo()
        for _, restore in reversed(self._saved.values()):
            restore()


def _become(tensor: Any, kind: type, memory: torch.Tensor, requires_grad: bool) -> None:
    """Sets the memory of a tensor that others hold or refer to weakly. Both are on the same
    device."""
    tensor.__class__ = plain_class(tensor)
    tensor.data = memory
    tensor.requires_grad_(requires_grad)
    tensor.__class__ = kind
