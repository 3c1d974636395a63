"""Where the elements of a tensor lie, and their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie from the first to the last one, gaps included, of a tensor that has
    any."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def addresses(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first byte, and behind the last one. An empty tensor has no bytes."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    return begin, begin + span(tensor.size(), tensor.stride()) * tensor.element_size()


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements in the order of C, in one dimension: a view, if they lie so."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
