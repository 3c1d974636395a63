"""What is left when workers end, are killed, or attach 2,000 times: nothing. And what torch's own
CUDA IPC leaves.

    leaks.py [--device cuda:0|host] [--weights FOLDER] [--small]"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import common
import gpuwm
from common import Worker, check, row, tell

REF = "leaks@v1"
PROCESSES, TOGETHER, CYCLES = 60, 8, 2000
IPC_KILLS = 3
IPC_BYTES = 256 << 20
NOISE_MIB = 8  # what the driver's own books move by
RSS_NOISE_MIB = 32
# Of a worker: its stdin ends; os._exit with live tensors; SIGKILL and SIGSEGV as it waits, SIGKILL
# as it computes, and at any moment of its start.
ENDS = ("well", "exit", "killed", "faulted", "computing", "starting")
SIGNALS = {"killed": signal.SIGKILL, "faulted": signal.SIGSEGV, "computing": signal.SIGKILL}
START_S = 8  # of a worker, to its answer, while seven others start
GONE_S = 5  # until the last lease of the dead is gone, a kernel that runs included


def worker(device: str, width: str, layers: str) -> None:
    """Binds, answers, and is told how to end."""
    import torch

    mapping = gpuwm.attach(REF, device=common.gpuwm_device(device))
    model = common.bound_decoder(mapping, int(width), int(layers))
    ids = common.inputs(device)
    with torch.inference_mode():
        answer = common.digest(model(ids))
    tell(answer=answer)
    end = sys.stdin.readline().strip()
    if end == "exit":
        os._exit(0)
    if end == "computing":
        big = torch.ones(4096, 4096, device=common.torch_device(device))
        for turn in range(10**9):
            big = big @ big
            if turn == 0:
                tell(computing=True)


class Crowd:
    """Some workers at once, each with its end."""

    def __init__(self, ends: Sequence[str], *words: str) -> None:
        self.started = [(end, Worker(*words)) for end in ends]

    def answers(self, chance: random.Random) -> set[str]:
        """Of those that come to it."""
        for end, each in self.started:
            if end == "starting":
                time.sleep(chance.uniform(0, START_S))
                each.kill()
        self.started = [(end, each) for end, each in self.started if end != "starting"]
        return {each.told().get("answer", "none") for _, each in self.started}

    def finish(self) -> float:
        """How long it takes then until the last lease is gone, in seconds."""
        for end, each in self.started:
            each.say(end)
            if end == "computing":
                each.told()
            if end in SIGNALS:
                each.process.send_signal(SIGNALS[end])
            each.end()
        begin = time.monotonic()
        common.eventually(lambda: common.leases(REF) == 0, 10 * GONE_S)
        return time.monotonic() - begin


def processes(device: str, width: int, layers: int, count: int) -> None:
    print(f"{count} workers, {TOGETHER} at a time: {', '.join(ENDS)}", flush=True)
    mib, fds = common.settled_mib(device), common.descriptors(common.daemon_pid())
    answers, gone, chance = set(), 0.0, random.Random(1)
    ends = [ENDS[turn % len(ENDS)] for turn in range(count)]
    for first in range(0, count, TOGETHER):
        crowd = Crowd(ends[first : first + TOGETHER], device, str(width), str(layers))
        answers |= crowd.answers(chance)
        if first == 0:
            check(common.leases(REF) == len(crowd.started), "each has its lease")
        gone = max(gone, crowd.finish())
    check(len(answers) == 1 and "none" not in answers, "all answered, and the same")
    row("the last worker's end to that of the last lease, s, at most", gone)
    check(gone <= GONE_S, f"no lease is left after {GONE_S} s")
    # The next process's numbers, not a wait for this: the driver frees what the dead had.
    common.eventually(lambda: common.device_mib(device) <= mib + NOISE_MIB, 20)
    now, left = common.settled_mib(device), common.descriptors(common.daemon_pid())
    row("GPU memory in use, MiB: before, after", mib, now)
    row("gpuwmd's descriptors: before, after", fds, left)
    check(now <= mib + NOISE_MIB, "GPU memory is as before")
    check(left <= fds, "gpuwmd's descriptors are as before")


def cycles(device: str, width: int, layers: int, count: int) -> None:
    """In this process: attach, bind, use one tensor, let go."""
    import torch

    print(f"{count} times in one process: attach, bind, compute, let go", flush=True)
    on = common.gpuwm_device(device)

    def once(turn: int) -> None:
        mapping = gpuwm.attach(REF, device=on)
        if turn % 10 == 0:
            model: Any = common.bound_decoder(mapping, width, layers)
            float(model.head.weight.sum())
        else:
            float(mapping.torch("head.weight").sum())
        if turn % 3 == 0:
            tensors = mapping.state_dict()
            mapping.drop()
            del tensors

    def quiet() -> bool:
        gc.collect()
        return common.leases(REF) == 0

    for turn in range(30):  # what is made once
        once(turn)
    common.eventually(quiet, 20)
    mib, fds = common.settled_mib(device), common.descriptors()
    theirs, anonymous = common.descriptors(common.daemon_pid()), common.anonymous_mib()
    allocated = torch.cuda.memory_allocated() if device != "host" else 0
    for turn in range(count):
        once(turn)
    check(common.eventually(quiet, 20), "no lease is left")
    row("GPU memory in use, MiB: before, after", mib, common.settled_mib(device))
    row("this process's descriptors: before, after", fds, common.descriptors())
    row("gpuwmd's descriptors: before, after", theirs, common.descriptors(common.daemon_pid()))
    row("this process's anonymous memory, MiB", anonymous, common.anonymous_mib())
    check(common.settled_mib(device) <= mib + NOISE_MIB, "GPU memory is as before")
    check(common.descriptors() <= fds, "descriptors are as before")
    check(common.descriptors(common.daemon_pid()) <= theirs, "gpuwmd's descriptors are as before")
    check(common.anonymous_mib() <= anonymous + RSS_NOISE_MIB, "memory is as before")
    if device != "host":
        check(torch.cuda.memory_allocated() <= allocated, "torch's memory is as before")


# ---- the control --------------------------------------------------------------------------------


def ipc_consumer(queue: Any, ready: Any) -> None:
    tensor = queue.get()
    ready.put(float(tensor[0]))
    ready.close()
    ready.join_thread()
    signal.pause()


def ipc() -> None:
    """A consumer of torch's CUDA IPC that is killed never gives its reference back."""
    import torch
    import torch.multiprocessing as mp

    print(f"control: torch's CUDA IPC, {IPC_KILLS} consumers killed, 256 MiB each", flush=True)
    context = mp.get_context("spawn")
    torch.cuda.empty_cache()
    before, used = torch.cuda.memory_allocated(), common.settled_mib("cuda:0")
    for _ in range(IPC_KILLS):
        tensor = torch.ones(IPC_BYTES // 4, device="cuda")
        queue, ready = context.SimpleQueue(), context.Queue()
        consumer = context.Process(target=ipc_consumer, args=(queue, ready))
        consumer.start()
        queue.put(tensor)
        ready.get(timeout=common.WORKER_S)
        assert consumer.pid is not None
        os.kill(consumer.pid, signal.SIGKILL)
        consumer.join()
        del tensor, queue
        gc.collect()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
    leaked = torch.cuda.memory_allocated() - before
    row("torch's allocated memory that nobody refers to, MiB", leaked >> 20)
    row("GPU memory in use, MiB: before, after", used, common.settled_mib("cuda:0"))
    check(leaked >= IPC_BYTES, "the control leaks where gpuwm does not")


def main(options: argparse.Namespace) -> None:
    width, layers = (64, 2) if options.small else (1024, 8)
    folder = common.decoder_folder(options.weights, "decoder", width, layers, 0)
    common.load(folder, REF, options.device)
    processes(options.device, width, layers, 6 if options.small else PROCESSES)
    cycles(options.device, width, layers, 200 if options.small else CYCLES)
    if options.device != "host":
        ipc()
    common.retire(REF)


if __name__ == "__main__":
    common.run(main, worker)
