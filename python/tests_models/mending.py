"""Inputs of another width, where torch's error says which width a module takes."""

from __future__ import annotations

import re

import torch

from .recipes import Inputs

# What the error says, the dimension that is wrong, and the groups with its size and the right one.
TOLD = (
    (re.compile(r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)"), -1, 1, 2),
    (re.compile(r"normalized_shape=\[(\d+)\].*input of size\[(?:\d+, )*(\d+)\]"), -1, 2, 1),
    (re.compile(r"to have (\d+) channels, but got (\d+) channels"), 1, 2, 1),
    (re.compile(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"), -1, 1, 2),
    (re.compile(r"patch width (\d+) but the model expects (\d+)"), -1, 1, 2),
)
MULTIPLE = re.compile(r"length (\d+) is not a multiple of (\d+)")


def mended(inputs: Inputs, error: BaseException) -> Inputs | None:
    """The inputs with the width that the error asks for. None if it asks for none, or if no input
    has the width that was wrong."""
    text = str(error)
    found = MULTIPLE.search(text)
    if found:
        length, of = int(found[1]), int(found[2])
        return _resized(inputs, -1, length, length - length % of)
    for pattern, dimension, wrong, right in TOLD:
        found = pattern.search(text)
        if found:
            return _resized(inputs, dimension, int(found[wrong]), int(found[right]))
    return None


def _resized(inputs: Inputs, dimension: int, wrong: int, right: int) -> Inputs | None:
    made = dict(inputs)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if value.dim() >= 2 and value.shape[dimension] == wrong:
            shape = list(value.shape)
            shape[dimension] = right
            made[name] = torch.randn(shape)
            return made
    return None
