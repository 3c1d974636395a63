"""vLLM's sleep mode on a CPU: gpuwm.vllm.Worker and vLLM's own allocator, with a stand-in for what
both call of CUDA."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import torch
from vllm import device_allocator
from vllm.config import VllmConfig
from vllm.device_allocator import AllocationData, cumem

GIB = 1 << 30
TOTAL = 80 * GIB
KV, RUNTIME = 0x100000, 0x200000  # addresses of pools
KV_BYTES, RUNTIME_BYTES = 40 * GIB, 64


class Gpu:
    """What the pools of one engine have on a GPU. others: bytes that other processes have.
    errors: how many of the next calls fail."""

    def __init__(self) -> None:
        self.mapped: dict[int, bytearray] = {}
        self.others = 0
        self.errors: dict[str, int] = {"map": 0, "backup": 0}
        self.calls: list[str] = []

    def fail(self, what: str) -> None:
        if self.errors[what]:
            self.errors[what] -= 1
            raise RuntimeError(f"CUDA Error: out of memory ({what})")

    def create_and_map(self, handle: Any) -> None:
        at = handle[2]
        self.calls.append(f"map {at:x}")
        self.fail("map")
        assert at not in self.mapped, "mapped twice"
        self.mapped[at] = bytearray(RUNTIME_BYTES)

    def unmap_and_release(self, handle: Any) -> None:
        at = handle[2]
        self.calls.append(f"unmap {at:x}")
        del self.mapped[at]

    def copy(self, to: int, source: int, size: int) -> None:
        self.fail("backup")
        if source in self.mapped:
            ctypes.memmove(to, bytes(self.mapped[source][:size]), size)
        else:
            self.mapped[to][:size] = ctypes.string_at(source, size)

    def info(self, device: Any = None, /) -> tuple[int, int]:
        return TOTAL - self.others - KV_BYTES * (KV in self.mapped), TOTAL


def sleeper(model: torch.nn.Module, rank: int, config: VllmConfig) -> Any:
    """A gpuwm.vllm.Worker that has loaded this model, and a KV cache. `gpu`: a Gpu."""
    from gpuwm.vllm import memory, model_loader
    from gpuwm.vllm.worker import Worker

    gpu = Gpu()
    allocator = cumem.CuMemAllocator()
    for at, size, tag in (
        (KV, KV_BYTES, "kv_cache"),
        (RUNTIME, RUNTIME_BYTES, "weights"),  # an adapter
    ):
        gpu.mapped[at] = bytearray(b"pool" * (RUNTIME_BYTES // 4))
        allocator.pointer_to_data[at] = AllocationData((0, size, at, at), tag)
    _stand_in(gpu, allocator)
    model_loader.leave_counting_to_the_worker()
    found: Any = object.__new__(Worker)
    found.gpu = gpu
    found.rank, found.device = rank, torch.device("cpu")
    found.vllm_config, found.model_config = config, config.model_config
    found.parallel_config = config.parallel_config
    found.gpu_sharing = memory.Sharing()
    found.model_runner = types.SimpleNamespace(
        model=model,
        get_model=lambda: model,
        get_draft_model=lambda: None,
        post_kv_cache_wake_up=lambda: found.after_wake(),
    )
    found.after_wake = lambda: None
    found._sleep_mode_backend = None
    found._sleep_saved_buffers = {}
    found._sleep_saved_parameters = {}
    found._sleep_saved_draft_buffers = {}
    return found


def _stand_in(gpu: Gpu, allocator: Any) -> None:
    device_allocator.get_mem_allocator_instance = lambda: allocator
    cumem.create_and_map = gpu.create_and_map
    cumem.unmap_and_release = gpu.unmap_and_release
    cumem.libcudart = types.SimpleNamespace(cudaMemcpy=gpu.copy)
    cumem.PIN_MEMORY = False
    for name, function in {
        "get_memory_info": gpu.info,
        "memory_reserved": lambda device: KV_BYTES + RUNTIME_BYTES,
        "empty_cache": lambda: None,
        "synchronize": lambda *_: None,
    }.items():
        setattr(torch.accelerator, name, function)
    torch.cuda.empty_cache = lambda: None
