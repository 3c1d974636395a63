"""Copies blocks between the KV caches of an engine and a region: all layers of all blocks in one
launch.

On a GPU a kernel of Triton does it (`kernel`). Copies by the driver would need a call for each
segment, and a block of 16 tokens has a segment of a few KiB in each layer. On a CPU torch's
indexing does it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from .layout import Layout


class Copier:
    """layout: of the engine's blocks. region: a tensor of bytes, (blocks, block_bytes), of this
    process's view of the region."""

    def __init__(self, layout: Layout, region: Any) -> None:
        self._layout, self._region = layout, region
        self._device = layout.tensors[0].device
        self._is_gpu = _is_gpu(self._device)
        self._side: Any = None
        self._rows = _rows(layout) if self._is_gpu else array("q")
        self._views = None if self._is_gpu else _views(layout)
        if self._is_gpu:
            self._warm_up()

    def _warm_up(self) -> None:
        """Has the kernel compiled now, and not while the engine serves. It copies nothing."""
        import torch

        from . import kernel

        table = torch.zeros(  # each segment has no bytes
            (len(self._layout.segments), 4), dtype=torch.int64, device=self._device
        )
        pairs = table.new_zeros((2, 1))
        for into_region in (True, False):
            kernel.copy(table, pairs, self._region.data_ptr(), self._layout, into_region)

    def put(self, blocks: Sequence[int], numbers: Sequence[int]) -> None:
        """Copies the engine's blocks into those of the region. On a GPU: in the current stream,
        behind what is queued there."""
        self._copy(blocks, numbers, into_region=True)

    def get(self, blocks: Sequence[int], numbers: Sequence[int]) -> None:
        """Copies blocks of the region into those of the engine, as `put`."""
        self._copy(blocks, numbers, into_region=False)

    def behind(self) -> Any:
        """A stream that has waited for the copies so far, to which the caller adds functions of the
        host. In the stream of the copies, vLLM's kernels would wait for them. None on a CPU, where
        a copy has ended when it returns."""
        import torch

        if not self._is_gpu:
            return None
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        return self._side

    def is_captured(self) -> bool:
        """Whether that stream is being captured: a graph would repeat the copies of its capture."""
        import torch

        return self._is_gpu and torch.cuda.is_current_stream_capturing()

    def _copy(self, blocks: Sequence[int], numbers: Sequence[int], into_region: bool) -> None:
        import torch

        # Ten times as fast as a tensor of two lists.
        words = self._rows + array("q", [*blocks, *numbers])
        sent = torch.frombuffer(words, dtype=torch.int64)
        if not self._is_gpu:
            self._copy_here(sent.view(2, -1), into_region)
            return
        from . import kernel  # Triton compiles for GPUs only

        # The table goes along with each copy, since nothing of the copier may stay on the GPU: vLLM
        # registers KV caches inside of its pool for them, and sleep mode discards that pool.
        sent = sent.pin_memory().to(self._device, non_blocking=True)
        table, pairs = sent[: len(self._rows)].view(-1, 4), sent[len(self._rows) :].view(2, -1)
        kernel.copy(table, pairs, self._region.data_ptr(), self._layout, into_region)

    def _copy_here(self, pairs: Any, into_region: bool) -> None:
        blocks, numbers = pairs
        for segment, view in zip(self._layout.segments, self._views or (), strict=True):
            shared = self._region[:, segment.offset : segment.offset + segment.nbytes]
            if into_region:
                shared[numbers] = view[blocks]
            else:
                view[blocks] = shared[numbers]


def _is_gpu(device: Any) -> bool:
    return bool(device.type == "cuda")


def _views(layout: Layout) -> list[Any]:
    """Of each segment: the bytes of all blocks, (blocks, nbytes)."""
    import torch

    found = []
    for segment in layout.segments:
        tensor = layout.tensors[segment.layer]
        plain = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        begin = tensor.storage_offset() * tensor.element_size() + segment.begin
        shape, strides = (layout.blocks, segment.nbytes), (segment.stride, 1)
        found.append(plain.set_(tensor.untyped_storage(), begin, shape, strides))
    return found


def _rows(layout: Layout) -> array[int]:
    """For the kernel: four words for each segment."""
    rows = array("q")
    for each in layout.segments:
        begin = layout.tensors[each.layer].data_ptr() + each.begin
        rows.extend((begin, each.stride, each.nbytes, each.offset))
    return rows
