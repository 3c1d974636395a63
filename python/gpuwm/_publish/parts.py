"""The tensors that a publish writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .._c import dtypes
from .making import Making, Spec


@dataclasses.dataclass(slots=True)
class Part:
    """A tensor to be published.

    - device: where it is, as torch names it.
    - write: copies its bytes into the publish, at a position.
    - move: makes the publish's memory at a position its own memory. None: it stays where it is.
    """

    spec: Spec
    device: str
    write: Callable[[Making, int], None]
    move: Callable[[Making, int], None] | None = None


class Gathered:
    """What was gathered.

    - parts: a tied tensor comes after the one that it is tied to.
    - problems: a line for each tensor that can't be published.
    - others: a text for each tensor that moves while something outside of the model keeps its old
      memory.
    - device: the one of all tensors that move, else of the first tensor.
    - files: of the version, by name: what a model has besides tensors.
    - cast: the dtype in which floating-point tensors are stored. None: their own.
    """

    def __init__(self, cast: str | None = None) -> None:
        self._cast = cast
        self.parts: list[Part] = []
        self.problems: list[str] = []
        self.others: list[str] = []
        self.files: dict[str, bytes] = {}
        self._places: dict[tuple[object, ...], str] = {}

    def tied_to(self, place: tuple[object, ...], name: str) -> str | None:
        """The name that came first with the same memory."""
        first = self._places.setdefault(place, name)
        return None if first == name else first

    def stored_as(self, dtype: str) -> str:
        """The dtype in which a dtype is stored. Both have the names of safetensors."""
        return self._cast if self._cast and dtype in dtypes.FLOATS.values() else dtype

    @property
    def device(self) -> str:
        moved = [part.device for part in self.parts if part.move is not None]
        others = [part.device for part in self.parts if part.device != "cpu"]
        return (*moved, *others, "cpu")[0]


def expanded(nbytes: int) -> str:
    return f"written out they take {nbytes} bytes: publish what it was expanded of"
