"""A model that is published in place: what it takes at most, what it leaves, what an interruption
leaves; its tensors, sent to other processes; and one that is cast as it is copied.

    publish.py [--device cuda:0|host] [--weights FOLDER] [--small]"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from typing import Any

import common
import gpuwm
from common import check, row
from gpuwm._publish.making import Making

MIB = 1 << 20
EXTRA_MIB = 2 << 10  # what publishing in place may need besides the model
CONSUMERS = 4


class Peak:
    """The most of the device that is in use, by all processes, in MiB: looked at all the time."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.mib = 0

    def _look(self) -> None:
        while not self._ended.is_set():
            self.mib = max(self.mib, used_mib(self._device))
            time.sleep(0.0005)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def used_mib(device: str) -> int:
    if device == "host":
        return 0
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return (total - free) // MIB


def model_on(device: str, width: int, layers: int, seed: int) -> Any:
    import torch

    torch.manual_seed(seed)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(common.torch_device(device)):
        return common.decoder(width, layers)


def answer(model: Any, device: str) -> str:
    import torch

    ids = common.inputs(device)
    with torch.inference_mode():
        return common.digest(model(ids))


def in_place(device: str, width: int, layers: int) -> None:
    import torch

    print("published in place")
    model = model_on(device, width, layers, 1)
    size = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers())) // MIB
    before, wanted = used_mib(device), answer(model, device)
    begin = time.perf_counter()
    with Peak(device) as peak:
        mapping = gpuwm.publish(model, "inplace@v1")
    seconds = time.perf_counter() - begin
    row("model, MiB", size)
    row("publishing it, s; GiB/s", seconds, size / 1024 / seconds)
    row("device in use, MiB: before, at most, after", before, peak.mib, used_mib(device))
    check(peak.mib - before <= EXTRA_MIB, f"at most {EXTRA_MIB} MiB more than the model")
    check(answer(model, device) == wanted, "the model answers as before")
    check(not mapping.check(model).lost, "every parameter is shared")
    if device != "host":
        left = torch.cuda.memory_allocated() // MIB
        row("torch's own memory afterwards, MiB", left)
        check(left <= max(64, size // 20), "the model's own memory is freed")
    send(mapping, device)
    del model, mapping
    check(common.eventually(lambda: common.leases("inplace@v1") == 0, 30), "all leases are back")
    common.retire("inplace@v1")


def interrupted(device: str, width: int, layers: int) -> None:
    print("interrupted midway")
    model = model_on(device, width, layers, 2)
    wanted = answer(model, device)
    export, calls = Making.export, itertools.count()
    half = len(list(model.parameters()))  # each is written, and moved

    def interrupting(making: Making, position: int) -> Any:
        if next(calls) == half:
            raise KeyboardInterrupt
        return export(making, position)

    Making.export = interrupting  # type: ignore[method-assign]
    try:
        gpuwm.publish(model, "interrupted@v1")
        check(False, "the interruption comes through")
    except KeyboardInterrupt:
        pass
    finally:
        Making.export = export  # type: ignore[method-assign]
    check(answer(model, device) == wanted, "the model answers as before")
    states = {version["state"] for version in common.versions(common.admin(), "interrupted")}
    check(states <= {"failed"}, f"there is no version: {states or 'none'}")
    gpuwm.publish(model, "interrupted@v2")
    check(answer(model, device) == wanted, "it can be published then")
    del model
    common.retire("interrupted@v2")


def cast(device: str, width: int, layers: int) -> None:
    import torch

    print("published as bfloat16 by who has it as float32")
    model = model_on(device, width, layers, 3).float()
    before = 0
    if device != "host":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    begin = time.perf_counter()
    gpuwm.publish(model, "cast@v1", bind=False, dtype=torch.bfloat16)
    row("publishing it, s", time.perf_counter() - begin)
    if device != "host":
        check(torch.cuda.max_memory_allocated(device) == before, "torch makes no tensor for it")
    with gpuwm.attach("cast@v1") as mapping:
        stored = mapping.state_dict()
        alike = (torch.equal(t.bfloat16(), stored[n]) for n, t in model.state_dict().items())
        check(all(alike), "every tensor is what torch makes of it")
        del stored
    check(all(p.dtype == torch.float32 for p in model.parameters()), "the model stays float32")
    common.retire("cast@v1")


# ---- sent to others -----------------------------------------------------------------------------


def consume(inbox: Any, outbox: Any) -> None:
    while (got := inbox.get()) is not None:
        outbox.put(common.digest(got))
        del got


def send(mapping: gpuwm.Mapping, device: str) -> None:
    """Two tensors to four consumers, twice each."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    consumers = [context.Process(target=consume, args=(inbox, outbox)) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.start()
    tensor = mapping.torch("blocks.0.up.weight")
    begin = time.perf_counter()
    for _ in range(2 * CONSUMERS):
        inbox.put(tensor[1:3])
    told = {outbox.get(timeout=common.WORKER_S) for _ in range(2 * CONSUMERS)}
    seconds = time.perf_counter() - begin
    row(f"{2 * CONSUMERS} sent, {CONSUMERS} processes with torch started, s", seconds)
    check(told == {common.digest(tensor[1:3])}, "every consumer has what was sent")
    for _ in consumers:
        inbox.put(None)
    for consumer in consumers:
        consumer.join(common.WORKER_S)
        check(consumer.exitcode == 0, "a consumer ends well")
    check(common.eventually(lambda: common.leases("inplace@v1") == 1, 30), "their leases are back")


def main(options: argparse.Namespace) -> None:
    sizes = (128, 2) if options.small else (4096, 32)
    in_place(options.device, *sizes)
    interrupted(options.device, *sizes)
    cast(options.device, *sizes)


if __name__ == "__main__":
    common.run(main)
