"""The kernels that the layers of a built model chose, as fields of a key."""

from __future__ import annotations

from collections.abc import Sequence

from . import texts

PREFIX = "backends."  # of the names of all these fields


class Layers:
    """Counts layers by the names of what they chose."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {}

    def add(self, part: str, names: Sequence[str]) -> None:
        """Counts a layer of a part of the model, "linear" or "moe". It does not count a layer that
        chose nothing."""
        if names:
            layers, joined = self._found.setdefault(part, {}), "/".join(names)
            layers[joined] = layers.get(joined, 0) + 1

    def fields(self) -> dict[str, str]:
        """A field for each part: the names, and how many layers have them."""
        return {
            f"{PREFIX}{part}": texts.short(
                ", ".join(f"{names} x {layers[names]}" for names in sorted(layers))
            )
            for part, layers in sorted(self._found.items())
        }
