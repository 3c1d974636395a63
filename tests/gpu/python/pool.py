"""Tensors that pass through a pool, beside torch's own queue: are they right when streams are late, how
many pass in a second, and what stays.

    pool.py [--device cuda:0|host] [--small] [--parts NAME,...]

Each part has processes of its own. `late` delays the reader's stream, and then the sender's kernel.
`rate` passes tensors of three sizes through `gpuwm.Queue` and through `torch.multiprocessing.Queue`, in
turns. `stays` sends 100,000 tensors."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import common
import gpuwm
from common import check, row

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4 KiB": 4 * KIB, "1 MiB": MIB, "64 MiB": 64 * MIB}
ROUNDS = {"4 KiB": 4000, "1 MiB": 4000, "64 MiB": 1000}
TURNS = 5
IN_FLIGHT = 8  # tensors of a size that the pool has room for, and the queue
PARTS = ("late", "rate", "stays")
DELAY_CYCLES = 1_000_000  # of the GPU's clock: half a millisecond
TORCH_HELD = 64  # torch's sender keeps so many tensors until the receiver has told that it read them


def delay(device: str, cycles: int) -> None:
    import torch

    if device != "cpu" and cycles:
        torch.cuda._sleep(cycles)


# ---- receivers ----------------------------------------------------------------------------------


def count_wrong(queue: Any, outbox: Any, device: str, cycles: int) -> None:
    """Counts words that are not the message's number, in the order of the stream: it waits for
    nothing but the end."""
    import torch

    wrong = torch.zeros((), dtype=torch.int64, device=device)
    count = 0
    while (got := queue.get(timeout=60)) is not None:
        number, ref = got
        tensor = ref.view()
        delay(device, cycles)
        wrong += (tensor != number).sum()
        count += 1
        del got, ref, tensor
    outbox.put((count, int(wrong)))


def read(queue: Any, outbox: Any) -> None:
    """Reads one word of each tensor, in the order of the stream. A number is answered."""
    import torch

    total = None
    while (got := queue.get()) is not None:
        if isinstance(got, torch.Tensor):
            word = got[-1:].double()
            total = word if total is None else total + word
        else:
            outbox.put(None if total is None else float(total))
            total = None
        del got


@contextlib.contextmanager
def receiver(target: Any, queue: Any, *arguments: Any) -> Iterator[Any]:
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    outbox = context.SimpleQueue()
    process = context.Process(target=target, args=(queue, outbox, *arguments))
    process.start()
    try:
        yield outbox
        queue.put(None)
        process.join(60)
    finally:
        process.kill()


@contextlib.contextmanager
def pool_queue(device: str, nbytes: int) -> Iterator[tuple[Any, Any]]:
    with (
        gpuwm.Pool(nbytes * IN_FLIGHT, device=device) as pool,
        gpuwm.Queue(IN_FLIGHT, pool=pool) as queue,
    ):
        yield pool, queue


# ---- late streams -------------------------------------------------------------------------------


def late(device: str, messages: int, *, sender: int, reader: int, what: str) -> None:
    """Each message is a tensor full of its number. `sender` and `reader`: how long each is late."""
    import torch

    torch_device = common.torch_device(device)
    with (
        pool_queue(device, MIB) as (pool, queue),
        receiver(count_wrong, queue, torch_device, reader) as outbox,
    ):
        begin = time.perf_counter()
        for number in range(messages):
            with pool.empty((MIB // 4,), torch.int32, wait=60) as filling:
                delay(torch_device, sender)
                filling.tensor.fill_(number)
                queue.put((number, filling.offer(others=1)), timeout=60)
        queue.put(None)
        count, wrong = outbox.get()
        row(what, count, wrong, f"{time.perf_counter() - begin:.1f} s")
        check(count == messages and wrong == 0, f"{what}: {messages} messages, no wrong word")


def part_late(device: str, small: bool) -> None:
    row("tensors of 1 MiB, through a pool with room for 8", "messages", "wrong", "")
    few = 200 if small else 1000
    late(device, 10 * few, sender=0, reader=DELAY_CYCLES, what="the reader's stream is late")
    late(device, few, sender=10 * DELAY_CYCLES, reader=0, what="the sender's kernel is late")


# ---- rates --------------------------------------------------------------------------------------


def pass_ours(queue: Any, outbox: Any, source: Any, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        queue.put(source, timeout=60)
    queue.put(0)
    outbox.get()
    return time.perf_counter() - begin


def pass_torch(queue: Any, outbox: Any, source: Any, count: int) -> float:
    """A tensor that was sent must not be written again before the receiver has read it, so each is a
    new one."""
    begin = time.perf_counter()
    held = []
    for number in range(count):
        held.append(source.clone())
        queue.put(held[-1])
        if (number + 1) % TORCH_HELD == 0:
            queue.put(0)
            outbox.get()
            held.clear()
    queue.put(0)
    outbox.get()
    return time.perf_counter() - begin


def rate(device: str, size: str, small: bool) -> None:
    import torch
    import torch.multiprocessing as mp

    nbytes, count = SIZES[size], ROUNDS[size] // (20 if small else 1) // TURNS
    source = torch.full((nbytes // 4,), 1.0, device=common.torch_device(device))
    torch_queue = mp.get_context("spawn").Queue(IN_FLIGHT)
    ours, theirs = [], []
    with (
        pool_queue(device, nbytes) as (_, queue),
        receiver(read, queue) as outbox,
        receiver(read, torch_queue) as torch_outbox,
    ):
        pass_ours(queue, outbox, source, count)
        pass_torch(torch_queue, torch_outbox, source, count)
        for _ in range(TURNS):
            ours.append(count / pass_ours(queue, outbox, source, count))
            theirs.append(count / pass_torch(torch_queue, torch_outbox, source, count))
    ratio = common.median(ours) / common.median(theirs)
    row(f"{size}, {count * TURNS} of each", common.median(ours), common.median(theirs), ratio)
    check(ratio >= 3, f"{size}: three times as many as torch's queue passes")


def part_rate(device: str, small: bool) -> None:
    row("messages a second, medians of the turns", "gpuwm", "torch", "ratio")
    for size in SIZES:
        rate(device, size, small)


# ---- what stays ---------------------------------------------------------------------------------


def in_use(device: str) -> dict[str, int]:
    import torch

    figures = {
        "descriptors": common.descriptors(),
        "/dev/shm": len(list(pathlib.Path("/dev/shm").iterdir())),
        "gpuwmd's bytes": gpuwm.connect().status()["bytes"],
    }
    if device != "host":
        free, total = torch.cuda.mem_get_info(device)
        figures["used by all, MiB"] = (total - free) // MIB
    return figures


def part_stays(device: str, small: bool) -> None:
    import torch

    sends = 2000 if small else 100_000
    source = torch.full((KIB,), 1.0, device=common.torch_device(device))
    with (
        pool_queue(device, 64 * KIB) as (pool, queue),
        receiver(read, queue) as outbox,
    ):
        pass_ours(queue, outbox, source, 100)
        before = in_use(device)
        seconds = pass_ours(queue, outbox, source, sends)
        after = in_use(device)
        row(f"after {sends} sends of 4 KiB in {seconds:.1f} s", "before", "after")
        for name, value in before.items():
            row(name, value, after[name])
            check(after[name] <= value, f"{name}: as before")
        check(common.eventually(lambda: pool.figures().used == 0, 10), "the pool is empty again")


def main(given: argparse.Namespace) -> None:
    parts = {"late": part_late, "rate": part_rate, "stays": part_stays}
    for name in given.parts.split(","):
        print(name, flush=True)
        parts[name](given.device, given.small)


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))


if __name__ == "__main__":
    common.run(main, more=more)
