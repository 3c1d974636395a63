"""Modules that keep views of their parameters, for the tests of bind, publish and images."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

OUTSIDE = "something that is not in the model keeps the old one"
GLOBALS: dict[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Cache:
    matrix: torch.Tensor


class Slotted:
    __slots__ = ("matrix",)

    def __init__(self, matrix: torch.Tensor) -> None:
        self.matrix = matrix


class Mixer(nn.Module):
    """A convolution that is used as a matrix: `hold` keeps that view somewhere."""

    def __init__(self, seed: int, hold: Callable[[Any, torch.Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv1d(4, 4, 3, groups=4)
        self.inner = nn.Module()
        hold(self, self.conv.weight.data.view(4, 3))


def _closure(matrix: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: matrix


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


# How a module keeps a view, and how it finds it again.
PLACES: dict[str, tuple[Callable[[Any, torch.Tensor], object], Callable[[Any], torch.Tensor]]] = {
    "buffer": (
        lambda m, view: m.register_buffer("matrix", view, persistent=False),
        lambda m: m.matrix,
    ),
    "saved buffer": (lambda m, view: m.register_buffer("matrix", view), lambda m: m.matrix),
    "attribute": (lambda m, view: setattr(m, "matrix", view), lambda m: m.matrix),
    "list": (lambda m, view: setattr(m, "kept", [1, view]), lambda m: m.kept[1]),
    "dict": (lambda m, view: setattr(m, "kept", {"a": [view]}), lambda m: m.kept["a"][0]),
    "set": (lambda m, view: setattr(m, "kept", {1, view}), lambda m: max(m.kept, key=_is_tensor)),
    "deque": (lambda m, view: setattr(m, "kept", collections.deque([view])), lambda m: m.kept[0]),
    "tuple": (lambda m, view: setattr(m, "kept", (0, (view,))), lambda m: m.kept[1][0]),
    "dataclass": (lambda m, view: setattr(m, "kept", Cache(view)), lambda m: m.kept.matrix),
    "slots": (lambda m, view: setattr(m, "kept", Slotted(view)), lambda m: m.kept.matrix),
    "closure": (lambda m, view: setattr(m, "kept", _closure(view)), lambda m: m.kept()),
    "partial": (
        lambda m, view: setattr(m, "kept", functools.partial(torch.clone, view)),
        lambda m: m.kept.args[0],
    ),
    "lent": (
        lambda m, view: setattr(
            m, "matrix", torch.utils.dlpack.from_dlpack(view)
        ),  # another storage
        lambda m: m.matrix,
    ),
    "submodule": (lambda m, view: setattr(m.inner, "matrix", view), lambda m: m.inner.matrix),
}


# A saved buffer that was built without memory gets values of its own: see test_bind's Early. What
# has no memory lends none.
BUILT = [(place, empty) for place in PLACES for empty in (False, True)]
BUILT.remove(("saved buffer", True))
BUILT.remove(("lent", True))


class Flat(nn.Module):
    """All parameters are parts of one tensor, which the module keeps, too."""

    def __init__(self) -> None:
        super().__init__()
        self.flat: Any = torch.rand(12)
        self.one = nn.Parameter(self.flat[:4])
        self.two = nn.Parameter(self.flat[4:].view(2, 4))


def _hook(model: Any, view: torch.Tensor) -> None:
    model.register_forward_hook(lambda *_: view)


# How something that no walk over the module reaches keeps a view.
UNREACHED: dict[str, Callable[[Any, torch.Tensor], object]] = {
    "global": lambda m, view: GLOBALS.update(view=view),
    "array": lambda m, view: setattr(m, "kept", view.numpy()),
    "lent": lambda m, view: GLOBALS.update(view=torch.utils.dlpack.from_dlpack(view)),
    "hook": _hook,
}
