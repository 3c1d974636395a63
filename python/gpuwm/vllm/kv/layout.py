"""Where the bytes of one block of vLLM's lie in the KV caches of all layers.

Each backend has a layout of its own: [2, blocks, …], [blocks, 2, …], one tensor for keys and values
or only latents, heads outside or inside of tokens. This module reads it from the strides. A block
has in each layer one or more *segments*, which are contiguous. A block of the region has the
segments of all layers, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ... import errors

ALIGN = 256  # gpuwm's: the bytes of a region's block are a multiple
LANE = 16  # bytes that a lane of the kernel copies at once


@dataclass(frozen=True)
class Segment:
    """What one block has in one place of a layer. layer: its position among the tensors. begin: in
    the layer's memory, of block 0. stride: from a block to the next. nbytes: of one block. offset:
    within a block of the region. All in bytes."""

    layer: int
    begin: int
    stride: int
    nbytes: int
    offset: int


@dataclass(frozen=True)
class Layout:
    """The segments of a block, in their order in a block of the region.

    - tensors: the layers' KV caches, each once.
    - blocks: how many vLLM has. block_bytes: of a block of the region.
    - described: a text that is equal for two engines if a block of one can be a block of the other.
      Where blocks lie in an engine's memory does not count, and neither does how many there are.
    """

    tensors: tuple[Any, ...]
    segments: tuple[Segment, ...]
    blocks: int
    block_bytes: int
    described: str

    @property
    def device(self) -> str:
        """The device of the KV cache, as gpuwm._c.devices.resolve takes it."""
        device = self.tensors[0].device
        return "host" if device.type == "cpu" else str(device)


def layout_of(caches: Mapping[str, Any], blocks: int, dims: Mapping[str, int]) -> Layout:
    """caches: of vLLM's `register_kv_caches`. blocks: how many blocks vLLM has. dims: in which
    dimension of a layer's tensor the blocks are; a layer that is not there has one dimension of
    that size. Raises Unsupported for a cache that can't be read in this way."""
    tensors: list[Any] = []
    segments: list[Segment] = []
    described: list[str] = []
    offset = 0
    seen = set()
    for name in caches:
        tensor = caches[name]
        if isinstance(tensor, (list, tuple)) or not hasattr(tensor, "stride"):
            raise _unsupported(name, "it is not one tensor: a state, and no KV of tokens")
        where = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        if where in seen:  # layers that share their cache
            continue
        seen.add(where)
        dim = dims[name] if name in dims else _block_dim(name, tensor, blocks)
        for begin, stride, nbytes in _segments(name, tensor, blocks, dim):
            segments.append(Segment(len(tensors), begin, stride, nbytes, offset))
            offset += nbytes
        tensors.append(tensor)
        described.append(_described(tensor, dim, blocks))
    if not segments:
        raise errors.Unsupported(
            "the engine has no KV cache", "start it without --kv-transfer-config"
        )
    size = -(-offset // ALIGN) * ALIGN
    return Layout(tuple(tensors), tuple(segments), blocks, size, "; ".join(described))


def _block_dim(name: str, tensor: Any, blocks: int) -> int:
    found = [dim for dim, size in enumerate(tensor.shape) if size == blocks]
    if len(found) != 1:
        raise _unsupported(
            name, f"of its dimensions {tuple(tensor.shape)} {len(found)} have {blocks} blocks"
        )
    return found[0]


def _segments(name: str, tensor: Any, blocks: int, dim: int) -> list[tuple[int, int, int]]:
    """(begin, stride, bytes) of one block's segments in a layer, in the order of their
    addresses."""
    parts, rest = divmod(tensor.shape[dim], blocks)
    if rest or not parts:
        raise _unsupported(name, f"it has {tensor.shape[dim]} blocks, and the engine {blocks}")
    width = tensor.element_size()
    stride = tensor.stride(dim) * width
    # A backend may have smaller blocks than vLLM's cache manager: several stand for one then.
    others = [(stride, parts)] if parts > 1 else []
    others += [
        (tensor.stride(each) * width, size)
        for each, size in enumerate(tensor.shape)
        if each != dim and size > 1
    ]
    nbytes = width
    outer: list[tuple[int, int]] = []
    for step, count in sorted(others):
        if step == nbytes:
            nbytes *= count
        else:
            outer.append((step, count))
    begins = [0]
    for step, count in reversed(outer):
        begins = [begin + step * number for begin in begins for number in range(count)]
    found = [(begin, stride * parts, nbytes) for begin in begins]
    _check(name, tensor, found)
    return found


def _described(tensor: Any, dim: int, blocks: int) -> str:
    """What one block of a layer is: its dimensions, from the outermost in memory to the innermost.
    They are numbered as in the tensor: backends name them in an order of their own."""
    others = [each for each in range(tensor.dim()) if each != dim]
    others.sort(key=lambda each: (-tensor.stride(each), each))
    sizes = " ".join(f"{each}:{tensor.shape[each]}" for each in others)
    return f"{tensor.dtype} {sizes} in {tensor.shape[dim] // blocks}"


def _check(name: str, tensor: Any, found: list[tuple[int, int, int]]) -> None:
    for number in (tensor.data_ptr(), *(each for segment in found for each in segment)):
        if number % LANE:
            raise _unsupported(name, f"its blocks are not multiples of {LANE} bytes")


def _unsupported(name: str, why: str) -> errors.Unsupported:
    return errors.Unsupported(
        f"GpuwmConnector can't copy the KV cache of layer {name}: {why}",
        "start the engine without --kv-transfer-config",
    )
