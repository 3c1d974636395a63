"""Digests of what tensors have, piece by piece."""

from __future__ import annotations

import concurrent.futures
import ctypes
import hashlib
import os
from collections.abc import Iterator, Sequence

import torch

# Bytes go through host memory in pieces of this size, one for each thread.
PIECE_BYTES = 32 << 20
# SHA-256 takes 1 to 2 GB/s of one core; more threads than this would wait for the GPU's link.
THREADS = 8


def of_all(tensors: Sequence[torch.Tensor]) -> list[str | None]:
    """The digest of each, in its order. None: it has no memory, or no bytes of its own."""
    plain = [torch.Tensor.detach(t) if has_bytes(t) else None for t in tensors]
    workers = min(THREADS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers, "gpuwm digest") as pool:
        return list(pool.map(lambda tensor: None if tensor is None else of(tensor), plain))


def has_bytes(tensor: torch.Tensor) -> bool:
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return not hasattr(tensor, "__tensor_flatten__")


def of(tensor: torch.Tensor) -> str:
    """The SHA-256 of a plain tensor's elements in the order of C, in hexadecimal."""
    found = hashlib.sha256()
    with torch.no_grad():
        for piece in _pieces(tensor.resolve_conj().resolve_neg()):
            host = piece.contiguous().cpu()
            size = host.numel() * host.element_size()
            if size:
                found.update((ctypes.c_char * size).from_address(host.data_ptr()))
    return found.hexdigest()


# Integers as wide as an element: torch has no kernel that copies some dtypes.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Pieces that are the tensor if they are put one after the other, in the order of C."""
    words = tensor.view(_WORDS[tensor.element_size()])
    if words.is_contiguous():
        words = words.view(-1)
    if words.numel() * words.element_size() <= PIECE_BYTES or words.dim() == 0:
        yield words
        return
    row = max(words.numel() // words.size(0) * words.element_size(), 1)
    count = max(PIECE_BYTES // row, 1)
    for begin in range(0, words.size(0), count):
        part = words[begin : begin + count]
        if count == 1 and part.dim() > 1:
            yield from _pieces(part[0])
        else:
            yield part
