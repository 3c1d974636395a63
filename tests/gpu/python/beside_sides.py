"""The two halves of beside_shared_tensor.py: what its processes do with gpuwm's builder, and with
the package shared-tensor.

Both make the same modules by `module`, which notes each build in the file `builds`. A build of KEY
waits while there is a file `hold-KEY`."""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import time
from typing import Any

import common
import gpuwm
from common import tell

VALUE = 1.5  # of every element
LAYER_MIB = 64
LAYER_WIDTH = 4096


def module(folder: pathlib.Path, device: str, key: str, mib: int) -> Any:
    note(folder, "begin", key)
    while (folder / f"hold-{key}").exists():
        time.sleep(0.005)
    begin = time.perf_counter()
    made = layers(device, mib)
    note(folder, "end", key, time.perf_counter() - begin)
    return made


def layers(device: str, mib: int) -> Any:
    """A linear layer of 16 x 4, or layers of 64 MiB each."""
    import torch
    from torch import nn

    shapes = [(LAYER_WIDTH, LAYER_WIDTH)] * (mib // LAYER_MIB) or [(16, 4)]
    made = nn.Sequential(*(nn.Linear(*shape, bias=False, device="meta") for shape in shapes))
    made.to_empty(device=common.torch_device(device))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(VALUE)
    common.synchronize(device)
    return made


def note(folder: pathlib.Path, what: str, key: str, seconds: float = 0.0) -> None:
    with open(folder / "builds", "a") as file:
        file.write(f"{what} {key} {os.getpid()} {seconds}\n")


def builds(folder: pathlib.Path, key: str, what: str = "begin") -> list[tuple[int, float]]:
    """Who built it, and how long that took."""
    if not (folder / "builds").exists():
        return []
    lines = (line.split() for line in (folder / "builds").read_text().splitlines())
    return [(int(pid), float(s)) for said, of, pid, s in lines if (said, of) == (what, key)]


# ---- gpuwm --------------------------------------------------------------------------------------


class Gpuwm:
    def __init__(self, folder: pathlib.Path, device: str) -> None:
        self.folder, self.device = folder, common.gpuwm_device(device)
        self.torch = device
        self.make = self._builder() if hasattr(gpuwm, "builder") else self._obtain

    def _builder(self) -> Any:
        @gpuwm.builder(key="{key}-{mib}", model="beside", device=self.device)
        def make(key: str, mib: int) -> Any:
            return module(self.folder, self.torch, key, mib)

        return make

    def _obtain(self, key: str, mib: int) -> Any:
        def build() -> Any:
            return module(self.folder, self.torch, key, mib)

        return gpuwm.obtain(f"beside@{key}-{mib}", build, mode="auto", device=self.device)

    def call(self, key: str, mib: int) -> Any:
        return self.make(key, mib)

    def value(self, held: Any) -> float:
        tensor = held.torch("0.weight") if isinstance(held, gpuwm.Mapping) else held[0].weight
        return float(tensor.detach().view(-1)[-1])

    def release(self, held: Any) -> None:
        if isinstance(held, gpuwm.Mapping):
            held.close()

    def describe(self, held: Any) -> dict[str, Any]:
        return {}


# ---- shared-tensor ------------------------------------------------------------------------------


def base_path(folder: pathlib.Path) -> str:
    return str(folder / "peer")


def client(folder: pathlib.Path) -> Any:
    from shared_tensor import SharedTensorClient

    return SharedTensorClient(base_path(folder), device_index=0, verbose_debug=False)


class SharedTensor:
    """endpoint: "recommended", with the options that its documentation advises for models that are
    used again, or "direct"."""

    def __init__(self, folder: pathlib.Path, device: str, endpoint: str = "recommended") -> None:
        self.client, self.endpoint = client(folder), endpoint

    def call(self, key: str, mib: int) -> Any:
        return self.client.call(self.endpoint, key=key, mib=mib)

    def value(self, held: Any) -> float:
        return float(held.value[0].weight.detach().view(-1)[-1])

    def release(self, held: Any) -> None:
        held.release()

    def describe(self, held: Any) -> dict[str, Any]:
        return {"object": held.object_id}


def serve(folder: pathlib.Path, device: str) -> None:
    """Its server, which builds."""
    from shared_tensor import SharedTensorProvider, SharedTensorServer

    provider = SharedTensorProvider(
        base_path(folder), execution_mode="server", device_index=0, verbose_debug=False
    )
    key_of = "{key}-{mib}"

    @provider.share(
        execution="task", managed=True, concurrency="serialized", cache_format_key=key_of
    )
    def recommended(key: str, mib: int) -> Any:
        return module(folder, device, key, mib)

    @provider.share(managed=True, cache_format_key=key_of)
    def direct(key: str, mib: int) -> Any:
        return module(folder, device, key, mib)

    SharedTensorServer(provider, verbose_debug=False).start(blocking=True)


# ---- a client -----------------------------------------------------------------------------------


class Client:
    """Does what is asked on stdin, and tells what came of it."""

    def __init__(self, side: Any) -> None:
        self.side = side
        self.held: list[Any] = []

    def call(self, key: str, mib: str) -> None:
        """Seconds until one value is read."""
        begin = time.perf_counter()
        held = self.side.call(key, int(mib))
        value = self.side.value(held)
        seconds = time.perf_counter() - begin
        self.held.append(held)
        tell(seconds=seconds, value=value, **self.side.describe(held))

    def read(self) -> None:
        tell(value=self.side.value(self.held[-1]))

    def release(self) -> None:
        held = self.held.pop()
        begin = time.perf_counter()
        self.side.release(held)
        del held
        tell(seconds=time.perf_counter() - begin)

    def rate(self, key: str, mib: str, seconds: str) -> None:
        """Calls, each released before the next."""
        times: list[float] = []
        end = time.perf_counter() + float(seconds)
        begin = time.perf_counter()
        while (now := time.perf_counter()) < end:
            self.side.release(self.side.call(key, int(mib)))
            times.append(time.perf_counter() - now)
        spent = time.perf_counter() - begin
        tell(a_second=len(times) / spent, p50=statistics.median(times))

    def serve(self) -> None:
        for line in sys.stdin:
            name, *words = line.split()
            try:
                getattr(self, name)(*words)
            except Exception as error:  # as an answer
                tell(error=f"{type(error).__name__}: {error}"[:200])


def worker(role: str, folder: str, device: str) -> None:
    """role: "gpuwm", "recommended" or "direct": a client. "server": shared-tensor's."""
    path = pathlib.Path(folder)
    layers(device, 0)  # CUDA's context, and what torch loads once
    if role == "server":
        serve(path, device)
        return
    side = Gpuwm(path, device) if role == "gpuwm" else SharedTensor(path, device, role)
    tell(started=True)
    Client(side).serve()
