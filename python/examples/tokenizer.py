"""A tokenizer process passes image features to a scheduler process: tokenizer.py [REQUESTS]

The tokenizer owns a pool, and copies the features of each request into it. What goes through the
queue is the request with tokens of a few bytes. The scheduler uses the features in place. When it
drops them, the pool has their room again: it stays as large as it is, however many requests come.
"""

import dataclasses
import multiprocessing
import sys
from typing import NamedTuple

import torch

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 4
POOL_BYTES = 8 << 20


class Features(NamedTuple):
    pixels: torch.Tensor  # large, on the GPU
    grid: torch.Tensor  # small, on the CPU


@dataclasses.dataclass
class Request:
    name: str
    token_ids: list[int]
    features: Features | None


def tokenize(number: int) -> Request:
    """Stands in for a tokenizer and an encoder of images."""
    token_ids = [number] * 4
    if number % 2:
        return Request(f"request {number}", token_ids, None)  # a text without an image
    pixels = torch.full((256, 1024), float(number), device=DEVICE)
    return Request(f"request {number}", token_ids, Features(pixels, torch.tensor([1, 16, 16])))


def tokenizer(requests: gpuwm.Queue) -> None:
    """The process that puts. Only the owner of a pool puts into it. While the scheduler has too
    much, `put` waits."""
    host = gpuwm.Pool(POOL_BYTES)
    pools = [host] if DEVICE == "cpu" else [host, gpuwm.Pool(POOL_BYTES, DEVICE)]
    for number in range(REQUESTS):
        requests.put(tokenize(number), pool=pools)
    requests.put(None)
    for pool in pools:
        pool.drain()  # a pool ends with the process that owns it


def scheduler(requests: gpuwm.Queue) -> None:
    for request in iter(requests.get, None):
        features = request.features
        if features is None:
            print(request.name, "has no image")
            continue
        grid, total = features.grid.tolist(), features.pixels.double().sum().item()
        print(request.name, "has", tuple(features.pixels.shape), "of", grid, "with the sum", total)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")  # CUDA does not work after a fork
    requests = gpuwm.Queue(maxsize=16)
    process = context.Process(target=tokenizer, args=(requests,))
    process.start()
    scheduler(requests)
    process.join()
