"""Representations of what many names belong to, short enough to be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

_NAMES_SHOWN = 4  # of a model's hundreds: what fits into a line and says what kind they are


def some(names: Collection[object]) -> str:
    """The first of these names, and how many there are if that is not all."""
    shown = [str(name) for _, name in zip(range(_NAMES_SHOWN), names, strict=False)]
    more = len(names) - len(shown)
    return ", ".join([*shown, *([f"and {more:,} more"] if more else [])])


def of_fields(result: Any) -> str:
    """A representation of a dataclass whose fields hold names."""
    told = (
        (field.name, getattr(result, field.name))
        for field in dataclasses.fields(result)
        if field.repr
    )
    fields = ", ".join(
        f"{name}=[{some(value)}]" if isinstance(value, tuple | list | dict) else f"{name}={value!r}"
        for name, value in told
    )
    return f"{type(result).__qualname__}({fields})"
