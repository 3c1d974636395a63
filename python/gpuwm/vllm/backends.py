"""The kernels that the layers of a built model chose, as fields of a key."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Any

from ..engines.backends import PREFIX, Layers

__all__ = ["PREFIX", "backends"]

# Attributes in which vLLM's layers and quantisation methods keep what they chose.
_ATTENTION = ("attn_backend", "prefill_backend", "mla_prefill_backend")
_LINEAR = ("fp8_linear", "kernel", "linear_kernel", "int8_linear", "scheme")
_EXPERTS = re.compile(r"((^|_)backend|^experts_cls)$")


def backends(model: Any) -> dict[str, str]:
    """The kernels that the layers of a built model chose (post-processed or not, on any device):
    the fields `backends.attention`, `backends.linear` and `backends.moe`, if there are such layers.
    Each lists names, and how many layers have them."""
    found = Layers()
    for module in model.modules():
        found.add("attention", _chosen(module, _ATTENTION))
        method = getattr(module, "quant_method", None)
        if method is None:
            continue
        kind = type(method).__name__
        held = [name for name in vars(method) if _EXPERTS.search(name)]
        if held or "MoE" in kind:
            found.add("moe", [kind, *_chosen(method, held)])
        else:
            scheme = getattr(module, "scheme", None)
            scheme_chose = [] if scheme is None else _chosen(scheme, _LINEAR)
            found.add("linear", [kind, *_chosen(method, _LINEAR), *scheme_chose])
    return found.fields()


def _chosen(holder: Any, names: Iterable[str]) -> list[str]:
    values = [getattr(holder, name, None) for name in names]
    return [_name(value) for value in values if value is not None]


def _name(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.name
    return (value if isinstance(value, type) else type(value)).__name__
