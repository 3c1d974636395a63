"""The copies of gpuwm.vllm.kv between an engine's KV caches and a region, beside a bare torch copy_
of as many bytes on the same device. The caches are those of 8 billion parameters: 32 layers, 8 KV
heads of 128, 16 tokens a block, bfloat16. It needs torch and Triton, and no vLLM.

    kv_copy.py [--device cuda:0|host] [--small]

A put or get is timed as a caller has it: with the numbers of the blocks on the host, until the
device is done. "by the GPU" is without the caller: by the GPU's clock, when all is queued."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import common
from common import check, median, row

LAYERS, HEADS, WIDTH, TOKENS = 32, 8, 128, 16
CACHE_BLOCKS, REGION_BLOCKS = 2560, 4096  # 5 GiB and 8 GiB
COUNTS = (64, 1875)  # of 1,024 and of 30,000 tokens
TIMES = 15
SLEEP_CYCLES = 4_000_000  # 2 ms and more: longer than it takes to queue a call
RATIO = 0.8  # of the bare copy: the goal

# A layer's cache by its shape; B is the number of blocks, of which dimension `at` counts.
SHAPES: dict[str, tuple[Callable[[int], tuple[int, ...]], int]] = {
    "keys and values of a block together": (lambda b: (b, 2, TOKENS, HEADS, WIDTH), 0),
    "all keys, then all values": (lambda b: (2, b, TOKENS, HEADS, WIDTH), 1),
}


def caches(torch: Any, device: str, blocks: int, shape: Any) -> dict[str, Any]:
    """Every byte is random, so that a block in the wrong place is found."""
    found = {}
    for layer in range(LAYERS):
        bits = torch.randint(-(1 << 15), 1 << 15, shape(blocks), dtype=torch.int16, device=device)
        found[f"layer.{layer}"] = bits.view(torch.bfloat16)
    return found


def same(torch: Any, one: Any, other: Any) -> bool:
    return bool(torch.equal(one.view(torch.int16), other.view(torch.int16)))


class Timer:
    """Seconds of a call: as the caller has it, and by the device's clock (None on host)."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._cuda = torch, device != "cpu"

    def whole(self, call: Callable[[], object]) -> float:
        self._wait()
        begin = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - begin

    def device(self, call: Callable[[], object]) -> float:
        """While the device sleeps, all of the call is queued."""
        first, last = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._torch.cuda._sleep(SLEEP_CYCLES)
        first.record()
        call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def rate(self, call: Callable[[], object], nbytes: int) -> tuple[float, float | None]:
        """GB/s, of medians. The first call compiles."""
        call()
        whole = median([self.whole(call) for _ in range(TIMES)])
        if not self._cuda:
            return nbytes / whole / 1e9, None
        return nbytes / whole / 1e9, nbytes / median(
            [self.device(call) for _ in range(TIMES)]
        ) / 1e9

    def _wait(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()


def right(torch: Any, copier: Any, layers: dict[str, Any], dim: int, count: int) -> bool:
    """What was put, cleared and got is what was there, and nothing else has changed."""
    before = {name: tensor.clone() for name, tensor in layers.items()}
    blocks, numbers = chosen(count, next(iter(layers.values())).shape[dim])
    copier.put(blocks, numbers)
    for tensor in layers.values():
        where = torch.tensor(blocks, device=tensor.device)
        tensor.view(torch.int16).index_fill_(dim, where, 0)
    copier.get(blocks, numbers)
    return all(same(torch, before[name], layers[name]) for name in layers)


def chosen(count: int, blocks: int) -> tuple[list[int], list[int]]:
    """Of the engine and of the region, in no order."""
    dice = random.Random(count)
    return dice.sample(range(blocks), count), dice.sample(range(REGION_BLOCKS), count)


def goal(what: str, ratio: float, on_host: bool) -> None:
    found = f"{what}: {ratio:.2f} of the bare copy, goal {RATIO}"
    if on_host:
        row(found)
    else:
        check(ratio >= RATIO, found)


def measure(torch: Any, device: str, name: str, blocks: int, counts: tuple[int, ...]) -> None:
    from gpuwm.vllm.kv.copier import Copier
    from gpuwm.vllm.kv.layout import layout_of

    shape, dim = SHAPES[name]
    layers = caches(torch, device, blocks, shape)
    layout = layout_of(layers, blocks, dict.fromkeys(layers, dim))
    region = torch.zeros((REGION_BLOCKS, layout.block_bytes), dtype=torch.uint8, device=device)
    copier, timer = Copier(layout, region), Timer(torch, device)
    check(right(torch, copier, layers, dim, counts[-1]), f"{name}: what is got is what was put")
    for count in counts:
        compare(torch, (copier, region), timer, chosen(count, blocks), f"{name}; {count} blocks")


def compare(torch: Any, copies: tuple[Any, Any], timer: Timer, pairs: Any, what: str) -> None:
    """copies: the copier and its region. pairs: the blocks of the engine, and of the region."""
    copier, region = copies
    nbytes = len(pairs[0]) * region.shape[1]
    source, target = (
        torch.zeros(nbytes, dtype=torch.uint8, device=region.device) for _ in range(2)
    )
    bare = timer.rate(lambda: target.copy_(source), nbytes)
    put = timer.rate(lambda: copier.put(*pairs), nbytes)
    get = timer.rate(lambda: copier.get(*pairs), nbytes)
    print(f"{what} of {region.shape[1] >> 10} KiB; GB/s")
    row("", "whole call", "by the GPU")
    for way, rates in (("copy_", bare), ("put", put), ("get", get)):
        row(way, *rates)
    on_host = region.device.type == "cpu"
    for way, rates in (("put", put), ("get", get)):
        row(f"{way}, the whole call: {rates[0] / bare[0]:.2f} of the bare copy")
        goal(way, (rates[1] or rates[0]) / (bare[1] or bare[0]), on_host)


def main(arguments: argparse.Namespace) -> None:
    import torch

    global REGION_BLOCKS
    device = common.torch_device(arguments.device)
    blocks, counts = CACHE_BLOCKS, COUNTS
    if arguments.small:
        blocks, counts, REGION_BLOCKS = 24, (4, 8), 32
    for name in SHAPES:
        measure(torch, device, name, blocks, counts)
        if device != "cpu":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    common.run(main)
