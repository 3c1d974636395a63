"""Where blocks lie in KV caches of different backends, and that copies find all their bytes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gpuwm
from gpuwm.vllm.kv import copier as copying
from gpuwm.vllm.kv.copier import Copier
from gpuwm.vllm.kv.layout import Layout, layout_of

BLOCKS, TOKENS, HEADS, SIZE = 5, 16, 2, 8
WIDTH = 2  # bytes of a value
ONE = TOKENS * HEADS * SIZE * WIDTH  # keys, or values, of one block of a layer


def plain(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.int16).reshape(shape)


def flash() -> torch.Tensor:
    return plain(BLOCKS, 2, TOKENS, HEADS, SIZE)


def older_flash() -> torch.Tensor:
    return plain(2, BLOCKS, TOKENS, HEADS, SIZE)


def heads_outside() -> torch.Tensor:
    return plain(BLOCKS, 2, HEADS, TOKENS, SIZE).permute(0, 1, 3, 2, 4)


def latent() -> torch.Tensor:
    return plain(BLOCKS, TOKENS, HEADS * SIZE)


def heads_outside_of_blocks() -> torch.Tensor:
    return plain(HEADS, BLOCKS, TOKENS, 2 * SIZE).permute(1, 0, 2, 3)


def of_all_layers() -> torch.Tensor:
    """One allocation for the blocks of all layers: this is one layer of it."""
    return plain(BLOCKS, 3, 2, TOKENS, HEADS, SIZE)[:, 1]


CACHES: dict[str, tuple[Callable[[], torch.Tensor], int, list[int]]] = {
    "flash": (flash, 0, [2 * ONE]),
    "older_flash": (older_flash, 1, [ONE, ONE]),
    "heads_outside": (heads_outside, 0, [2 * ONE]),
    "latent": (latent, 0, [ONE]),
    "heads_outside_of_blocks": (heads_outside_of_blocks, 0, [ONE, ONE]),
    "of_all_layers": (of_all_layers, 0, [2 * ONE]),
}


def block_of(tensor: torch.Tensor, dim: int, number: int) -> torch.Tensor:
    return tensor.select(dim, number)


def region(layout: Layout, blocks: int = 7) -> torch.Tensor:
    return torch.zeros((blocks, layout.block_bytes), dtype=torch.uint8)


@pytest.mark.parametrize("name", CACHES)
def test_segments_are_as_long_as_they_can_be(name: str) -> None:
    make, dim, expected = CACHES[name]
    layout = layout_of({"layer": make()}, BLOCKS, {"layer": dim})
    assert [each.nbytes for each in layout.segments] == expected
    assert layout.block_bytes == sum(expected)


@pytest.mark.parametrize("name", CACHES)
def test_a_block_goes_into_the_region_and_into_another_engine(name: str) -> None:
    make, dim, _ = CACHES[name]
    mine, theirs = [make(), make() + 1], [make() * 0, make() * 0]
    names = ("layers.0", "layers.1")
    dims = dict.fromkeys(names, dim)
    here = layout_of(dict(zip(names, mine, strict=True)), BLOCKS, dims)
    there = layout_of(dict(zip(names, theirs, strict=True)), BLOCKS, dims)
    shared = region(here)
    Copier(here, shared).put([1, 4], [6, 2])
    assert not shared[[0, 1, 3, 4, 5]].any()
    Copier(there, shared).get([0, 3], [2, 6])
    for layer, other in zip(mine, theirs, strict=True):
        assert torch.equal(block_of(other, dim, 0), block_of(layer, dim, 4))
        assert torch.equal(block_of(other, dim, 3), block_of(layer, dim, 1))
        for untouched in (1, 2, 4):
            assert not block_of(other, dim, untouched).any()


def test_the_kernel_gets_the_whole_table_with_each_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleep mode discards what lies in vLLM's pool for KV caches, where a copier is made. So it
    keeps nothing on the GPU."""
    layers = {"a": flash(), "b": flash()}
    layout = layout_of(layers, BLOCKS, dict.fromkeys(layers, 0))
    shared, got = region(layout), []

    def copy(table: Any, pairs: Any, begin: int, *_: Any) -> None:
        got.append((table.tolist(), pairs.tolist(), begin))

    monkeypatch.setitem(sys.modules, "gpuwm.vllm.kv.kernel", types.SimpleNamespace(copy=copy))
    monkeypatch.setattr("gpuwm.vllm.kv.kernel", sys.modules["gpuwm.vllm.kv.kernel"], raising=False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(copying, "_is_gpu", lambda device: True)
    copier = Copier(layout, shared)
    copier.put([1, 4], [6, 2])
    copier.get([0], [5])
    rows = [
        [tensor.data_ptr(), 2 * ONE, 2 * ONE, 2 * ONE * at]
        for at, tensor in enumerate(layers.values())
    ]
    assert got[-2:] == [
        (rows, [[1, 4], [6, 2]], shared.data_ptr()),
        (rows, [[0], [5]], shared.data_ptr()),
    ]
    kept = [each for each in vars(copier).values() if isinstance(each, torch.Tensor)]
    assert [each is shared for each in kept] == [True]


def test_a_backend_with_smaller_blocks() -> None:
    """vLLM's cache manager has blocks of 32 tokens, and the backend has blocks of 16."""
    halves = plain(2 * BLOCKS, 2, TOKENS, HEADS, SIZE)
    layout = layout_of({"layer": halves}, BLOCKS, {"layer": 0})
    assert [each.nbytes for each in layout.segments] == [4 * ONE]
    shared, other = region(layout), halves * 0
    Copier(layout, shared).put([3], [0])
    Copier(layout_of({"layer": other}, BLOCKS, {"layer": 0}), shared).get([1], [0])
    assert torch.equal(other[2:4], halves[6:8])


def test_layers_of_different_sizes_have_all_their_bytes_in_a_block() -> None:
    wide, narrow = plain(BLOCKS, 2, TOKENS, HEADS, SIZE), plain(BLOCKS, TOKENS, SIZE)
    layout = layout_of({"a": wide, "b": narrow}, BLOCKS, {"a": 0, "b": 0})
    used = 2 * ONE + ONE // HEADS
    assert [each.offset for each in layout.segments] == [0, 2 * ONE]
    assert layout.block_bytes == -(-used // 256) * 256


def test_layers_that_share_a_cache_are_copied_once() -> None:
    one = flash()
    layout = layout_of({"a": one, "b": one}, BLOCKS, {"a": 0, "b": 0})
    assert len(layout.segments) == 1


def described(tensor: torch.Tensor, blocks: int, dim: int) -> str:
    return layout_of({"layer": tensor}, blocks, {"layer": dim}).described


def test_the_description_does_not_depend_on_how_many_blocks_there_are() -> None:
    many = plain(4 * BLOCKS, 2, TOKENS, HEADS, SIZE)
    assert described(flash(), BLOCKS, 0) == described(many, 4 * BLOCKS, 0)
    many = plain(2, 4 * BLOCKS, TOKENS, HEADS, SIZE)
    assert described(older_flash(), BLOCKS, 1) == described(many, 4 * BLOCKS, 1)


def test_blocks_that_are_not_the_same_are_described_otherwise() -> None:
    found = [described(make(), BLOCKS, dim) for make, dim, _ in CACHES.values()]
    assert found[0] == found[-1]  # they differ only in where blocks lie
    found += [
        described(flash().view(torch.bfloat16), BLOCKS, 0),
        described(plain(BLOCKS, 2, 2 * TOKENS, HEADS, SIZE // 2), BLOCKS, 0),
        described(plain(2 * BLOCKS, 2, TOKENS, HEADS, SIZE), BLOCKS, 0),
    ]
    assert len(set(found)) == len(found) - 1


def test_a_dimension_that_no_backend_names_is_found_by_its_size() -> None:
    assert layout_of({"a": flash()}, BLOCKS, {}).segments[0].nbytes == 2 * ONE


@pytest.mark.parametrize(
    ("cache", "blocks", "dims", "message"),
    [
        ([torch.zeros(BLOCKS)], BLOCKS, {}, "not one tensor"),
        (torch.zeros(2, 2, 8), 2, {}, "2 have 2 blocks"),
        (torch.zeros(3, 8), BLOCKS, {}, "0 have 5 blocks"),
        (torch.zeros(3, 8), BLOCKS, {"a": 0}, "it has 3 blocks, and the engine 5"),
        (torch.zeros(BLOCKS, 3), BLOCKS, {"a": 0}, "not multiples of 16 bytes"),
    ],
)
def test_what_can_not_be_copied(
    cache: Any, blocks: int, dims: dict[str, int], message: str
) -> None:
    with pytest.raises(gpuwm.Unsupported, match=message):
        layout_of({"a": cache}, blocks, dims)


def test_an_engine_without_a_cache() -> None:
    with pytest.raises(gpuwm.Unsupported, match="no KV cache"):
        layout_of({}, BLOCKS, {})
