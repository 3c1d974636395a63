"""An owner of a graph, or of a record."""

from __future__ import annotations

import dataclasses
from typing import Any

Held = Any
"""What a slot holds, as JSON: a plain value (see `values`), {"node": position}, {"tensor":
position}, {"array": …} (see `arrays`), or {"other": text} for what is not looked into."""


@dataclasses.dataclass(slots=True)
class Node:
    """An owner. name: its path, the first that was found. kind: see `owner_kind`, or "tensor".
    said: its class, or the name of a function. slots: for each slot its kind, its key and what it
    holds."""

    name: str
    kind: str
    said: str
    slots: list[tuple[str, Any, Held]]
    owner: Any = None
