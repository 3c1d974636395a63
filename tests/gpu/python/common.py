"""What the programs beside this have in common: a device, gpuwmd, workers, tables.

Each runs on a GPU or, with --device host, on host memory with a model as small as --small says."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gpuwm

STANDBY_S = 60  # until gpuwmd has its next loader
WORKER_S = 180  # a worker's start, with torch, beside 15 others


def run(
    main: Callable[[argparse.Namespace], None],
    worker: Callable[..., None] | None = None,
    more: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> None:
    """This program: what it was given goes to `main`, and its exit status tells what failed. As a
    `Worker` it is `worker`. more: adds arguments of its own."""
    if worker and sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:])
        return
    main(arguments(sys.modules["__main__"].__doc__, more))
    if failed:
        print(f"FAILED: {len(failed)} of the checks above", flush=True)
    sys.exit(bool(failed))


def arguments(
    text: str | None, more: Callable[[argparse.ArgumentParser], object]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--device", default="cuda:0", help='"cuda:0" or "host"')
    parser.add_argument("--weights", default=f"/tmp/gpuwm-weights-{os.getuid()}", help="a root of gpuwmd's")
    parser.add_argument("--small", action="store_true", help="tiny models, and few of everything")
    more(parser)
    return parser.parse_args()


def torch_device(device: str) -> str:
    return "cpu" if device == "host" else device


def gpuwm_device(device: str) -> str:
    """As gpuwmd names it."""
    if device == "host":
        return device
    cuda = [found.id for found in gpuwm.connect().devices if found.is_cuda]
    return cuda[int(device.partition(":")[2] or 0)]


# ---- tables and verdicts ------------------------------------------------------------------------

failed: list[str] = []


def row(what: str, *values: Any) -> None:
    cells = (f"{v:.2f}" if isinstance(v, float) else str(v) for v in values)
    print(f"  {what:<64}" + "".join(f" {cell:>12}" for cell in cells), flush=True)


def check(holds: bool, what: str) -> None:
    print(f"  {'ok    ' if holds else 'FAILED'} {what}", flush=True)
    if not holds:
        failed.append(what)


def median(values: list[float]) -> float:
    return statistics.median(values)


# ---- gpuwmd -------------------------------------------------------------------------------------


def admin() -> gpuwm.Client:
    return gpuwm.connect(admin=True, wait=10)


def load(folder: pathlib.Path, name: str, device: str) -> None:
    """Loads it unless it is there."""
    client = admin()
    model, _, tag = name.partition("@")
    if any(version["tag"] == tag for version in versions(client, model)):
        return
    begin = time.perf_counter()
    client.load(folder, name, devices=gpuwm_device(device)).wait(600)
    print(f"  {name} loaded in {time.perf_counter() - begin:.2f} s", flush=True)


def versions(client: gpuwm.Client, model: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = client.list(model)["versions"]
    except gpuwm.NotFound:
        return []
    return found


def retire(name: str) -> None:
    client = admin()
    model = name.partition("@")[0]
    with contextlib.suppress(gpuwm.Error):
        client.swap(model, None)
    with contextlib.suppress(gpuwm.NotFound):
        client.retire(name, 30)
    eventually(lambda: admin().status()["standby"], STANDBY_S)


def leases(name: str) -> int:
    model, _, tag = name.partition("@")
    return sum(v["leases"] for v in versions(admin(), model) if v["tag"] == tag)


def eventually(holds: Callable[[], Any], seconds: float) -> bool:
    """Waits until it holds, but no longer than that."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# ---- what is in use -----------------------------------------------------------------------------


def device_mib(device: str) -> int:
    """Of the GPU, all processes; on host: what gpuwmd's versions and this machine's anonymous
    memory are not told apart by, so 0."""
    if device == "host":
        return 0
    index = device.partition(":")[2] or "0"
    query = ("--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", index)
    return int(subprocess.run(["nvidia-smi", *query], check=True, capture_output=True).stdout)


def settled_mib(device: str) -> int:
    """After processes ended, the driver takes a moment: the lowest of some readings."""
    readings = []
    for _ in range(10):
        readings.append(device_mib(device))
        time.sleep(0.1)
    return min(readings)


def anonymous_mib(pid: int | str = "self") -> float:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def daemon_pid() -> int:
    """Of who listens at $GPUWM_SOCKET."""
    pid = os.environ.get("GPUWM_DAEMON_PID")
    assert pid, "set GPUWM_DAEMON_PID to gpuwmd's"
    return int(pid)


# ---- workers ------------------------------------------------------------------------------------


class Worker:
    """This program's `worker`, in a process of its own, with these words. It tells JSON, one object
    a line, and lives until its stdin ends."""

    def __init__(self, *words: str, **environment: str) -> None:
        began = {"GPUWM_BEGAN": repr(time.monotonic())}
        self.process = subprocess.Popen(
            [sys.executable, sys.argv[0], "worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | began | environment,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def told(self) -> dict[str, Any]:
        """Its next line; {"error": …} when it ended instead."""
        assert self.process.stdout is not None
        timer = threading.Timer(WORKER_S, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            return {"error": f"ended with {self.process.wait()}: {line}"}
        return found

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.process.wait(WORKER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def tell(**what: Any) -> None:
    """A worker's line."""
    print(json.dumps(what), flush=True)


@contextlib.contextmanager
def workers(count: int, *words: str) -> Iterator[list[Worker]]:
    started = [Worker(*words) for _ in range(count)]
    try:
        yield started
    finally:
        for worker in started:
            worker.end()


class Watch:
    """Times from the process's start, in seconds."""

    def __init__(self) -> None:
        self.began = float(os.environ["GPUWM_BEGAN"])
        self.last = self.began
        self.times: dict[str, float] = {}

    def done(self, what: str) -> None:
        now = time.monotonic()
        self.times[what] = now - self.last
        self.last = now


# ---- a model of plain torch ---------------------------------------------------------------------


def decoder(width: int, layers: int, words: int = 512) -> Any:
    """A small decoder whose forward pass can be captured: no branch looks at a value."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.attend = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, _ = x.shape
            parts = self.attend(self.norm(x)).view(batch, length, 3, -1, 64).unbind(2)
            q, k, v = (part.transpose(1, 2) for part in parts)
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(x)))

    class Decoder(nn.Module):
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = nn.Linear(width, words, bias=False)
            self.register_buffer("scale", torch.ones(width))  # private when bound: it is refreshed

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            for block in self.blocks:
                x = block(x)
            logits: torch.Tensor = self.head(x * self.scale)
            return logits

    return Decoder().eval()


def decoder_folder(root: str, name: str, width: int, layers: int, seed: int) -> pathlib.Path:
    """Its checkpoint, random; made anew when it has other sizes."""
    import torch
    from safetensors.torch import save_file

    folder = pathlib.Path(root, f"{name}-{width}-{layers}-{seed}")
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        state = decoder(width, layers).state_dict()
        state["scale"] = torch.rand(width) + 0.5
        save_file(state, folder / "model.safetensors")
        (folder / "complete").touch()
    return folder


def bound_decoder(mapping: gpuwm.Mapping, width: int, layers: int) -> Any:
    with gpuwm.empty_init():
        model = decoder(width, layers)
    mapping.bind(model)
    return model


def inputs(device: str) -> Any:
    """What a decoder is asked."""
    import torch

    return (torch.arange(64) % 97).view(2, 32).to(torch_device(device))


def digest(tensor: Any) -> str:
    import hashlib

    return hashlib.sha256(tensor.detach().float().cpu().numpy().tobytes()).hexdigest()[:16]


def synchronize(device: str) -> None:
    if device != "host":
        import torch

        torch.cuda.synchronize()
