"""A version by legacy CUDA IPC: read by plain torch in a process without gpuwm, while its holder and gpuwmd are killed; and
attaching by handles beside attaching by descriptors. Kills gpuwmd at its end.

    ipc.py [--device cuda:0] [--small]"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from typing import Any

import common
import gpuwm
from common import Worker, check, median, row, settled_mib, tell

REF = "ipc@v1"
TENSORS, TIMES = 8, 5
OTHER_UID = 12345
NOISE_MIB = 64
LOST_S = 10

# Plain torch, without gpuwm. stdin: a pickle of what it opens, and then a line for each reading. It tells the sums that it reads.
STRANGER = '''
import json, pickle, sys, time
import torch
assert "gpuwm" not in sys.modules
size = int(sys.stdin.buffer.readline())
tensors = pickle.loads(sys.stdin.buffer.read(size))
torch.zeros(1, device="cuda")
begin = time.perf_counter()
opened = {}
try:
    for name, (args, dtype, shape, strides) in tensors.items():
        storage = torch.UntypedStorage._new_shared_cuda(*args)
        opened[name] = torch.empty(0, dtype=getattr(torch, dtype), device="cuda").set_(storage, 0, shape, strides)
    torch.cuda.synchronize()
except Exception as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0]}), flush=True)
    sys.exit(1)
print(json.dumps({"ms": (time.perf_counter() - begin) * 1000}), flush=True)
for line in sys.stdin.buffer:
    sums = {name: int(tensor.view(torch.int32).sum(dtype=torch.int64)) for name, tensor in opened.items()}
    print(json.dumps({"sums": sums}), flush=True)
'''


def worker(device: str, transport: str) -> None:
    """Attaches with a context that is there, and tells how long that took."""
    import torch

    torch.zeros(1, device=common.torch_device(device))
    gpuwm.connect().ping()
    begin = time.perf_counter()
    mapping = gpuwm.attach(REF, device=common.gpuwm_device(device), transport=transport)  # type: ignore[call-overload]
    took = (time.perf_counter() - begin) * 1000
    mapping.verify()
    tell(ms=took, content=mapping.version.content, tensors=len(mapping))
    sys.stdin.readline()


class Stranger:
    def __init__(self, handles: gpuwm.Handles, uid: int | None = None) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GPUWM_SOCKET")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", STRANGER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | {"HOME": "/tmp"},
            user=uid,
        )
        data = pickle.dumps(
            {
                name: (handles.torch_args(name), "float32", info.shape, info.strides)
                for name, info in handles.tensors.items()
            }
        )
        self.say(f"{len(data)}\n".encode() + data)
        self.opened = self.told()

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": f"ended with {self.process.wait()}"}

    def sums(self) -> Any:
        if "error" in self.opened:
            return None
        self.say(b"read\n")
        return self.told().get("sums")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def publish(device: str, nbytes: int) -> dict[str, int]:
    """The sums of its tensors."""
    import torch

    each = nbytes // TENSORS // 4
    generator = torch.Generator(device=common.torch_device(device)).manual_seed(1)
    tensors = {
        f"layer.{number}.weight": torch.randn(
            (each // 1024, 1024), device=common.torch_device(device), generator=generator
        )
        for number in range(TENSORS)
    }
    gpuwm.publish(tensors, REF, bind=False, device=common.gpuwm_device(device))
    return {name: int(t.view(torch.int32).sum(dtype=torch.int64)) for name, t in tensors.items()}


def attach_ms(device: str, transport: str) -> float:
    attached = Worker(device, transport)
    told = attached.told()
    attached.end()
    check(told.get("tensors") == TENSORS, f"a worker reads it by {transport}: {told.get('error', 'all digests are right')}")
    return float(told.get("ms", 0))


def no_copies() -> bool:
    return common.eventually(lambda: common.admin().status()["copies"] == 0, 60)


def times(device: str, nbytes: int) -> None:
    print(f"attaching {nbytes >> 20} MiB, ms (a context is there; medians of {TIMES})")
    row("", "first", "next")
    first, *after = [attach_ms(device, "fd") for _ in range(1 + TIMES)]
    row("fd", first, median(after))
    check(no_copies(), "no copy is there")
    first, *after = [attach_ms(device, "cuda_ipc") for _ in range(1 + TIMES)]
    row("cuda_ipc: first: the copy is made, next: it is there", first, median(after))


def gone(handles: gpuwm.Handles) -> str:
    try:
        handles.check()
    except gpuwm.Error as error:
        return f"{type(error).__name__}: {error.message}"
    return ""


def is_there(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


def plain_torch(device: str, sums: dict[str, int]) -> None:
    import torch

    print(f"torch {torch.__version__} alone")
    before = settled_mib(device)
    handles = gpuwm.handles(REF, device=common.gpuwm_device(device))
    row("GPU memory that the copy takes, its holder's context included, MiB", settled_mib(device) - before)
    first, second = Stranger(handles), Stranger(handles)
    row("opened by plain torch, ms", first.opened.get("ms", 0.0))
    check(first.sums() == sums and second.sums() == sums, f"two processes without gpuwm read equal tensors {first.opened}")
    other = Stranger(handles, OTHER_UID) if os.geteuid() == 0 else None
    if other:
        check(other.sums() == sums, f"so does one of uid {OTHER_UID} (the holder's: {os.geteuid()}): {other.opened}")
        other.end()
    os.kill(handles.holder, signal.SIGKILL)
    check(common.eventually(lambda: gone(handles), LOST_S), f"the holder killed: {gone(handles)}")
    check(first.sums() == sums, "who has it open reads on")
    late = Stranger(handles)
    check("error" in late.opened, f"nobody opens it any more: {late.opened}")
    late.end()
    again = gpuwm.handles(REF, device=common.gpuwm_device(device))
    check(again.holder != handles.holder, "asked again, there is a new copy")
    third = Stranger(again)
    check(third.sums() == sums, "and torch reads it")
    holder = again.holder
    os.kill(common.daemon_pid(), signal.SIGKILL)
    check(common.eventually(lambda: not is_there(holder), LOST_S), "gpuwmd killed: the holder ends with it")
    check(third.sums() == sums, "who has it open reads on")
    for stranger in (first, second, third):
        stranger.end()


def main(arguments: argparse.Namespace) -> None:
    device = arguments.device
    nbytes = (64 << 20) if arguments.small else (8 << 30)
    sums = publish(device, nbytes)
    import torch

    torch.cuda.empty_cache()
    before = settled_mib(device)
    times(device, nbytes)
    check(no_copies(), "no copy is left")
    plain_torch(device, sums)
    check(
        common.eventually(lambda: settled_mib(device) < before + NOISE_MIB, 20),
        f"with gpuwmd, holders and readers gone the copies are gone: {before} MiB before, {settled_mib(device)} MiB now",
    )


if __name__ == "__main__":
    common.run(main, worker)
