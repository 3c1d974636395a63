"""The kernels that the layers of a built model chose, as fields of a key."""

from __future__ import annotations

import enum
from typing import Any

from ..engines.backends import Layers

# Attributes in which SGLang's quantisation methods and schemes keep what they chose.
_CHOICES = ("scheme", "kernel", "runner_backend", "use_marlin", "use_deepgemm", "block_quant")


def backends(model: Any) -> dict[str, str]:
    """The kernels that the layers of a built model chose (post-processed or not, on any device):
    the fields `backends.linear` and `backends.moe`, if there are such layers. Each lists names, and
    how many layers have them."""
    found = Layers()
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is None:
            continue
        part = "moe" if "MoE" in type(method).__name__ else "linear"
        holders = (method, getattr(method, "runner", None), getattr(module, "scheme", None))
        names = [type(method).__name__]
        for holder in holders:
            names += [_name(vars(holder)[name]) for name in _CHOICES if _has(holder, name)]
        found.add(part, names)
    return found.fields()


def _has(holder: Any, name: str) -> bool:
    return hasattr(holder, "__dict__") and vars(holder).get(name) not in (None, False)


def _name(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bool, str)):
        return str(value)
    return (value if isinstance(value, type) else type(value)).__name__
