"""What it costs to pass one tensor on: made by `gpuwm.share` beside torch's own, both through a
`multiprocessing.Queue`, in turns, each in two processes of its own. And what stays then.

    share_queue.py [--device cuda:0|host] [--small]

A round: the sender makes a tensor and puts it into the queue, the receiver reads one value, both
drop it, and its memory is freed. The row `a number` is what the queue itself takes."""

from __future__ import annotations

import argparse
import gc
import math
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import common
import gpuwm
from common import Worker, check, row, tell

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4 KiB": 4 * KIB, "1 MiB": MIB, "64 MiB": 64 * MIB}
ROUNDS = {"4 KiB": 300, "1 MiB": 300, "64 MiB": 100}
TURNS = 10  # the rounds of a size are done in so many turns
FREED_S = 10
KILLED_BYTES = 64 * MIB
SIDES = ("gpuwm", "torch", "number")


# ---- a receiver ---------------------------------------------------------------------------------


def receive(inbox: Any, outbox: Any) -> None:
    """Reads one value of each, drops it. None ends it; what is sent with True is kept."""
    while (got := inbox.get()) is not None:
        tensor, kept = got
        outbox.put(tensor if isinstance(tensor, float) else float(tensor[-1]))
        if kept:
            signal.pause()
        del got, tensor
        outbox.put(None)


# ---- a sender -----------------------------------------------------------------------------------


class Sender:
    """side: "gpuwm", "torch", or "number", which sends no tensor."""

    def __init__(self, side: str, device: str) -> None:
        import torch.multiprocessing as mp

        self.side, self.device = side, common.torch_device(device)
        context = mp.get_context("spawn")
        self.inbox, self.outbox = context.Queue(), context.SimpleQueue()
        self.receiver = context.Process(target=receive, args=(self.inbox, self.outbox))
        self.receiver.start()
        self.client = gpuwm.connect()
        self.number = 0

    def made(self, nbytes: int) -> Any:
        import torch

        self.number = (self.number + 1) % 1000
        if self.side == "number":
            return float(self.number)
        tensor = torch.full((nbytes // 4,), float(self.number), device=self.device)
        return gpuwm.share(tensor) if self.side == "gpuwm" else tensor

    def is_freed(self) -> bool:
        """What was sent takes no memory. torch's memory of the CPU can't be asked for: it is a
        file without a name, and goes with its last descriptor."""
        if self.side == "gpuwm":
            return not self.client.status()["nameless"]
        if self.side == "torch" and self.device != "cpu":
            import torch

            torch.cuda.ipc_collect()
            return torch.cuda.memory_allocated() == 0
        return True

    def round(self, nbytes: int) -> dict[str, float]:
        """Seconds from the beginning until each step is done."""
        begin = time.perf_counter()
        tensor = self.made(nbytes)
        self.inbox.put((tensor, False))
        value = self.outbox.get()
        read = time.perf_counter() - begin
        assert value == self.number, f"{value} came, {self.number} was sent"
        self.outbox.get()
        del tensor
        dropped = time.perf_counter() - begin
        while not self.is_freed():
            if time.perf_counter() - begin > FREED_S:
                return {"read": read, "dropped": dropped, "freed": math.inf}
        return {"read": read, "dropped": dropped, "freed": time.perf_counter() - begin}

    def rounds(self, nbytes: str, count: str) -> None:
        tell(rounds=[self.round(int(nbytes)) for _ in range(int(count))])

    def left(self) -> None:
        """What stays of all that was sent."""
        gc.collect()
        common.eventually(self.is_freed, FREED_S)
        tell(**self.in_use())

    def killed(self, nbytes: str) -> None:
        """The receiver is killed while it has a tensor, and then the sender drops it."""
        tensor = self.made(int(nbytes))
        self.inbox.put((tensor, True))
        self.outbox.get()
        self.receiver.kill()
        self.receiver.join()
        del tensor
        gc.collect()
        freed = common.eventually(self.is_freed, FREED_S)
        tell(freed=freed, **self.in_use())

    def in_use(self) -> dict[str, int]:
        import torch

        status = self.client.status()
        allocated = torch.cuda.memory_allocated() if self.device != "cpu" else 0
        files = sum(1 for _ in pathlib.Path("/dev/shm").glob("torch_*"))
        return {
            "nameless": status["nameless"],
            "bytes": status["bytes"],
            "allocated": allocated,
            "files": files,
            "descriptors": common.descriptors(),
        }


def worker(side: str, device: str) -> None:
    sender = Sender(side, device)
    commands: dict[str, Callable[..., None]] = {
        "rounds": sender.rounds,
        "left": sender.left,
        "killed": sender.killed,
    }
    for line in sys.stdin:
        name, *words = line.split()
        commands[name](*words)
    sender.receiver.kill()


# ---- the tables ---------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def ask(sender: Worker, *words: object) -> dict[str, Any]:
    sender.say(" ".join(map(str, words)))
    return sender.told()


def measure(senders: dict[str, Worker], nbytes: int, rounds: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {side: [] for side in SIDES}
    turns = min(TURNS, rounds)
    for sender in senders.values():
        ask(sender, "rounds", nbytes, 3)  # what is made once
    for _ in range(turns):
        for side, sender in senders.items():
            found[side] += ask(sender, "rounds", nbytes, rounds // turns)["rounds"]
    return found


def report(size: str, found: dict[str, list[Any]]) -> None:
    for side in SIDES:
        times = found[side]
        cells: list[float] = []
        for step in ("read", "dropped", "freed"):
            ms = [1e3 * each[step] for each in times]
            cells += [percentile(ms, 0.5), percentile(ms, 0.95)]
        label = {"gpuwm": "gpuwm.share", "torch": "torch", "number": "a number"}[side]
        row(f"{size}: {label}, {len(times)} rounds", *(f"{ms:.3f}" for ms in cells))


def tables(senders: dict[str, Worker], sizes: dict[str, int], small: bool) -> None:
    print("  ms from the tensor's making; p50 and p95 until it is", flush=True)
    row("", "read", "p95", "dropped", "p95", "freed", "p95")
    for size, nbytes in sizes.items():
        report(size, measure(senders, nbytes, 20 if small else ROUNDS[size]))


def what_stays(senders: dict[str, Worker], device: str) -> None:
    print("what stays", flush=True)
    names = ("nameless", "bytes", "allocated", "files", "descriptors")
    heads = ("nameless", "gpuwmd's B", "torch's B", "/dev/shm", "descriptors")
    row("", *heads)
    for side, sender in senders.items():
        left = ask(sender, "left")
        row(f"{side}: after all rounds", *(left[name] for name in names))
        if side == "gpuwm":
            check(not left["nameless"] and not left["bytes"], "gpuwmd has none of what was shared")
    for side in ("gpuwm", "torch"):
        left = ask(senders[side], "killed", KILLED_BYTES)
        row(f"{side}: its receiver was killed with 64 MiB", *(left[name] for name in names))
        if side == "gpuwm":
            check(left["freed"], f"it is freed within {FREED_S} s of the receiver's death")
    row("GPU memory in use, MiB", common.settled_mib(device))


def main(options: argparse.Namespace) -> None:
    device = options.device
    print(f"a tensor passed on, {device}: gpuwm.share beside torch's own", flush=True)
    row("GPU memory in use before, MiB", common.settled_mib(device))
    senders = {side: Worker(side, device) for side in SIDES}
    sizes = {"4 KiB": SIZES["4 KiB"], "1 MiB": MIB} if options.small else SIZES
    tables(senders, sizes, options.small)
    what_stays(senders, device)
    for sender in senders.values():
        sender.end()
    row("GPU memory in use when all have ended, MiB", common.settled_mib(device))


if __name__ == "__main__":
    common.run(main, worker)
