"""What a model returns, as tensors by path; comparing in every bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch


def tensors_of(value: Any, path: str = "output") -> dict[str, torch.Tensor]:
    """Every tensor in what a model returned: in mappings, lists, dataclasses and objects."""
    return dict(_walk(value, path, set()))


def _walk(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value.detach().clone()
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for key, each in _parts(value):
        yield from _walk(each, f"{path}.{key}", seen)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple, set)):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value):
        yield from vars(value).items()
    elif type(value).__module__.startswith(("transformers.cache", "transformers.models")):
        yield from getattr(value, "__dict__", {}).items()


def differences(mine: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> list[str]:
    """What differs in names, shapes, dtypes or any bit, with the largest difference."""
    found = [f"{name} is in one only" for name in sorted(mine.keys() ^ theirs.keys())]
    for name in sorted(mine.keys() & theirs.keys()):
        text = _difference(mine[name], theirs[name])
        if text:
            found.append(f"{name} {text}")
    return found


def _difference(one: torch.Tensor, other: torch.Tensor) -> str | None:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"is {one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}"
    if one.is_meta or other.is_meta:
        return None if one.is_meta == other.is_meta else "has memory in one only"
    if same_bits(one, other):
        return None
    if not one.numel() or one.dtype == torch.bool:
        return "differs"
    most = (one.to(torch.float64) - other.to(torch.float64)).abs().max().item()
    return f"differs by up to {most:.3g}"


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_sparse or other.is_sparse:
        one, other = one.to_dense(), other.to_dense()
    # A clone, since a view of one element may have a stride of 0 and count as contiguous.
    both = (each.detach().clone(memory_format=torch.contiguous_format) for each in (one, other))
    return torch.equal(*(each.flatten().view(torch.uint8) for each in both))
