"""The kernel that copies blocks on a GPU. It needs Triton, which vLLM has on GPUs."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from .layout import Layout

_WORD = 8  # bytes of an element; a lane copies two of them at once
_WORDS = 1024  # of a program: 8 KiB, with 64 bytes for each of 128 threads
_WARPS = 4


# Not specialised for `count`, which differs in every step: it would be compiled again while the
# engine serves.
@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _copy(  # type: ignore[no-untyped-def]
    table, pairs, count, region, block_bytes, into: tl.constexpr, most: tl.constexpr
):
    """One program copies up to `most` words of one segment of one block."""
    pair = tl.program_id(0)
    row = table + tl.program_id(1) * 4
    begin, stride = tl.load(row), tl.load(row + 1)
    nbytes, offset = tl.load(row + 2), tl.load(row + 3)
    block = tl.load(pairs + pair)
    number = tl.load(pairs + count + pair)
    own = (begin + block * stride).to(tl.pointer_type(tl.int64))
    shared = (region + number * block_bytes + offset).to(tl.pointer_type(tl.int64))
    # The compiler can't know that both are multiples of 16 (layouts.LANE), and would copy word by
    # word.
    own = tl.multiple_of(own, 16)
    shared = tl.multiple_of(shared, 16)
    words = tl.multiple_of(nbytes // 8, 2)
    at = tl.program_id(2) * most + tl.arange(0, most)
    if into:
        tl.store(shared + at, tl.load(own + at, mask=at < words), mask=at < words)
    else:
        tl.store(own + at, tl.load(shared + at, mask=at < words), mask=at < words)


def copy(table: Any, pairs: Any, region: int, layout: Layout, into_region: bool) -> None:
    """Launches the copy in the current stream. table: `copying._rows`, on the GPU. pairs: on the
    GPU, vLLM's blocks and then the region's. region: its address."""
    longest = max(segment.nbytes for segment in layout.segments) // _WORD
    count = pairs.shape[1]
    grid = (count, len(layout.segments), triton.cdiv(longest, _WORDS))
    _copy[grid](
        table,
        pairs,
        count,
        region,
        layout.block_bytes,
        into=into_region,
        most=_WORDS,
        num_warps=_WARPS,
    )
