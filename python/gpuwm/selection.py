"""Which tensors of a version: by layer, by glob."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from . import errors

# Where a layer's number stands in the names of common models: model.layers.7.mlp, transformer.h.7.
_PLACES = ("layers", "h", "blocks", "layer", "block")
_NUMBER = re.compile(rf"(?:^|\.)(?:{'|'.join(_PLACES)})\.(\d+)(?:\.|$)")


class Selection:
    """Tensors of the layers, or whose name one of the globs matches (`*`, `?`, `[…]`; a dot is
    a letter like any other). Without either: all."""

    def __init__(
        self, layers: Iterable[int] | None = None, glob: str | Sequence[str] | None = None
    ) -> None:
        self._all = layers is None and glob is None
        self._layers = frozenset(layers if layers is not None else ())
        self._globs = (glob,) if isinstance(glob, str) else tuple(glob or ())
        if not self._all and not self._layers and not self._globs:
            raise errors.Invalid("no layer and no glob", "None for both takes all tensors")
        if any(layer < 0 for layer in self._layers):
            raise errors.Invalid(f"layer {min(self._layers)}", "layers count from 0")

    def __contains__(self, name: str) -> bool:
        if self._all:
            return True
        found = _NUMBER.search(name) if self._layers else None
        if found is not None and int(found.group(1)) in self._layers:
            return True
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def globs(self) -> list[str]:
        """For the library: they match every tensor that is wanted, and few others. [] for all."""
        numbers = _classes(self._layers)
        layers = (
            f"{prefix}{place}.{number}{suffix}"
            for place in _PLACES
            for number in numbers
            for prefix in ("", "*.")
            for suffix in ("", ".*")
        )
        return [*self._globs, *layers]

    def __str__(self) -> str:
        parts = [f"layers {sorted(self._layers)}"] if self._layers else []
        return " and ".join([*parts, *self._globs]) or "all tensors"


def _classes(numbers: Iterable[int]) -> list[str]:
    """Globs for numbers: {1, 2, 3, 12} gives [123] and 1[2]: 80 layers are 8 globs, not 80."""
    tens: dict[str, set[str]] = defaultdict(set)
    for number in numbers:
        digits = str(number)
        tens[digits[:-1]].add(digits[-1])
    return [f"{head}[{''.join(sorted(last))}]" for head, last in sorted(tens.items())]
