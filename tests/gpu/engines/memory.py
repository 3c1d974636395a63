"""GPU memory in use, of all processes, as NVML counts it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
SETTLED_S = 20.0  # the driver takes a while to tear down the contexts of processes that ended
STEADY_S = 0.3  # in which what is in use must not shrink any more


class Gpus:
    """Of this machine; none where NVML finds none, and then everything in use is 0."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        try:
            import pynvml
        except ImportError:
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        count = pynvml.nvmlDeviceGetCount()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def __len__(self) -> int:
        return len(self._handles)

    def used_mib(self) -> list[int]:
        """For each GPU."""
        get = self._nvml.nvmlDeviceGetMemoryInfo if self._handles else None
        return [get(handle).used // MIB for handle in self._handles] if get else []

    def total_mib(self) -> int:
        """Of the first one."""
        if not self._handles:
            return 0
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handles[0]).total // MIB)

    def processes_mib(self) -> dict[int, int]:
        """What each process has on all GPUs. What gpuwm holds is no process's."""
        found: dict[int, int] = {}
        for handle in self._handles:
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                found[process.pid] = found.get(process.pid, 0) + (process.usedGpuMemory or 0) // MIB
        return found

    def settled_mib(self) -> list[int]:
        """After processes ended: as soon as it has not shrunk for a moment."""
        deadline = time.monotonic() + SETTLED_S
        lowest, since = self.used_mib(), time.monotonic()
        while time.monotonic() - since < STEADY_S and time.monotonic() < deadline:
            time.sleep(0.02)
            now = self.used_mib()
            if sum(now) < sum(lowest):
                lowest, since = now, time.monotonic()
        return lowest


@dataclass
class Watch:
    """The most that was in use on any one GPU since `before` was read, in MiB above that."""

    gpus: Gpus
    before: list[int] = field(default_factory=list)
    most: int = 0

    def begin(self) -> Watch:
        self.before, self.most = self.gpus.used_mib(), 0
        return self

    def look(self) -> None:
        now = self.gpus.used_mib()
        self.most = max(
            [self.most, *(one - other for one, other in zip(now, self.before, strict=True))]
        )
