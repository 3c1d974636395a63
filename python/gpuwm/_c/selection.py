"""Selects tensors of a version, by layer or by glob."""

from __future__ import annotations

import glob as globs_of_python
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .. import errors
from . import lib

if TYPE_CHECKING:
    from .handle import TensorInfo

# Where the names of common models have a layer's number: model.layers.7.mlp, transformer.h.7,
# layers.0007.weight.
_NUMBER = re.compile(r"(?:^|.*?\.)(?:layers|layer|blocks|block|h)\.(\d+)\.")


class Selection:
    """Tensors of the layers, or whose name one of the globs matches (`*`, `?`, `[…]`; a dot is a
    letter like any other). With neither: all tensors."""

    def __init__(
        self, layers: Iterable[int] | None = None, glob: str | Sequence[str] | None = None
    ) -> None:
        self.layers: frozenset[int] = frozenset() if layers is None else _layers(layers)
        self._globs: tuple[str, ...] = () if glob is None else lib.names(glob, "glob")
        self.is_all: bool = layers is None and glob is None
        if not self.is_all and not self.layers and not self._globs:
            raise errors.Invalid("no layer and no glob", "None for both takes all tensors")

    def __contains__(self, name: str) -> bool:
        if self.is_all:
            return True
        found = _NUMBER.match(name) if self.layers else None
        if found is not None and int(found.group(1)) in self.layers:
            return True
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def of(self, infos: list[TensorInfo]) -> list[TensorInfo]:
        return infos if self.is_all else [info for info in infos if info.name in self]

    def globs(self, names: Iterable[str]) -> list[str]:
        """Globs for the library, each of which matches some of the version's names. [] for all
        tensors. `names` are needed for layers. Raises NotFound if no tensor belongs to a layer."""
        there: set[int] = set()
        numbers: dict[str, set[str]] = defaultdict(set)
        for found in filter(None, map(_NUMBER.match, names)):
            if (number := int(found.group(1))) in self.layers:
                there.add(number)
                numbers[found.group()[: -len(found.group(1)) - 1]].add(found.group(1))
        missing = self.layers - there
        if missing:
            raise errors.NotFound(
                f"the version has no layer {', '.join(map(str, sorted(missing)))}",
                "layers are those of names as model.layers.7.mlp, transformer.h.7, blocks.7",
            )
        return [
            *self._globs,
            *(
                f"{globs_of_python.escape(head)}{number}.*"
                for head, of_head in numbers.items()
                for number in _classes(of_head)
            ),
        ]

    def __str__(self) -> str:
        parts = [f"layers {sorted(self.layers)}"] if self.layers else []
        return " and ".join([*parts, *self._globs]) or "all tensors"


def _layers(layers: Iterable[int]) -> frozenset[int]:
    wanted = "several ints: range(0, 20)"
    if not isinstance(layers, Iterable):
        raise lib.wrong("layers", layers, wanted)
    try:
        return frozenset(lib.count(layer, "layers", lib.UINT32_MAX) for layer in layers)
    except TypeError:
        raise lib.wrong("layers", layers, wanted) from None


def _classes(numbers: Iterable[str]) -> list[str]:
    """Globs for numbers as the names have them, some with zeros in front: {1, 2, 3, 12} gives [123]
    and 1[2], {0001, 0002} gives 000[12]. So 80 layers take 8 globs, and not 80."""
    tens: dict[str, set[str]] = defaultdict(set)
    for digits in numbers:
        tens[digits[:-1]].add(digits[-1])
    return [f"{head}[{''.join(sorted(last))}]" for head, last in sorted(tens.items())]
