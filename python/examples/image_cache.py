"""Processes share what they make of images, in blocks that outlive them: image_cache.py [PROCESSES]

Each process needs the features of the same images. The first one that asks for an image makes its
features in a block. The others wait for that process, and then read the block where it lies. An
image that nobody has wanted for long makes room.
"""

import hashlib
import multiprocessing
import sys
from typing import Any

import torch

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROCESSES = int(sys.argv[1]) if len(sys.argv) > 1 else 4
IMAGES, SHAPE = 6, (256, 64)  # of float32


def key_of(image: bytes) -> bytes:
    """16 bytes that find the block, and 8 bytes of another digest, which must be equal too."""
    found = hashlib.blake2b(image, digest_size=16, person=b"features-1").digest()
    return found + hashlib.sha256(image).digest()[:8]


def worker(answers: "multiprocessing.Queue[tuple[int, float]]") -> None:
    cache = gpuwm.Blocks.open_or_create(
        "image-features", device=DEVICE, blocks=64, block_bytes=SHAPE[0] * SHAPE[1] * 4
    )
    made, total = 0, 0.0
    with cache:
        rows = cache.tensor().view(torch.float32).view(-1, *SHAPE)
        for number in range(IMAGES):
            image = bytes([number]) * 1000  # stands in for a file

            def encode(memory: Any, image: bytes = image) -> None:
                """Stands in for an encoder. Its result goes into the block."""
                nonlocal made
                made += 1
                there = memory if DEVICE == "cuda" else torch.frombuffer(memory, dtype=torch.uint8)
                there.view(torch.float32).fill_(image[0])

            with cache.get_or_put(key_of(image), encode) as held:
                total += float(rows[held.numbers[0]].mean())
        del rows
    answers.put((made, total))


def main() -> None:
    processes = multiprocessing.get_context("spawn")
    answers = processes.Queue()
    started = [processes.Process(target=worker, args=(answers,)) for _ in range(PROCESSES)]
    for process in started:
        process.start()
    results = [answers.get(timeout=120) for _ in started]
    for process in started:
        process.join()
    print(
        f"{IMAGES} images, {PROCESSES} processes: encoded {sum(made for made, _ in results)} times"
    )
    print("each has summed", *sorted({total for _, total in results}))
    gpuwm.Blocks.remove("image-features")


if __name__ == "__main__":
    main()
