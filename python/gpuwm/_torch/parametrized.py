"""Weights that torch computes from others: the model has them and the version has what they are
computed from, or the other way round."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

NORMS = (WeightNorm, SpectralNorm)  # hooks, from before torch had parametrizations
REMEDY = (
    "parametrized: make both so, or neither: torch.nn.utils.parametrize.remove_parametrizations, "
    "remove_weight_norm or remove_spectral_norm before one is bound or published"
)
_OF_NORMS = ("orig", "g", "v", "u")
_PARTS = (
    re.compile(r"((?:.*\.)?)parametrizations\.([^.]+)\..*"),
    re.compile(rf"()(.*)_(?:{'|'.join(_OF_NORMS)})"),
)


def explained(
    modules: Iterable[tuple[str, nn.Module]], ours: Collection[str], theirs: Collection[str]
) -> dict[str, str]:
    """Names of the model (ours) and of the version (theirs) that the other lacks for this reason,
    each with a line that says so. Names that belong together have the same line."""
    found: dict[str, str] = {}
    for name, makers, parts in _computed(modules):
        if name in theirs:
            line = f"parametrized: {makers} computes {name} in the model, the version stores it"
            found.update(dict.fromkeys((name, *parts), line))
    for part in theirs:
        if part in ours:
            continue
        for match in filter(None, (pattern.fullmatch(part) for pattern in _PARTS)):
            name = match[1] + match[2]
            if name in ours and name not in theirs:
                line = (
                    f"parametrized: the model stores {name}, the version what it is computed from"
                )
                found[name] = found[part] = line
    return found


def _computed(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[tuple[str, str, list[str]]]:
    """For each computed weight of a model: its name, what computes it, and the names that it is
    computed from."""
    for prefix, module in modules:
        if parametrize.is_parametrized(module):
            for key, makers in module.parametrizations.items():  # type: ignore[union-attr, operator]
                of = f"{prefix}parametrizations.{key}."
                tensors = (*makers.named_parameters(), *makers.named_buffers())
                said = ", ".join(type(maker).__name__.strip("_") for maker in makers)
                yield prefix + key, said, [of + name for name, _ in tensors]
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, NORMS):
                name = prefix + hook.name
                yield name, type(hook).__name__, [f"{name}_{part}" for part in _OF_NORMS]
