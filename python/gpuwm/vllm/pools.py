"""Loads outside of vLLM's memory pool, which sleep mode and --enable-cumem-allocator use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def outside(vllm_config: Any, load: Callable[[], T]) -> T:
    """Calls `load()` so that nothing that it makes is in vLLM's sleeping pool. Raises what `load`
    raises.

    With that pool vLLM's worker directs what its thread allocates into a pool that gives no block
    back before the worker has left the pool's context. A model that is published in there would be
    held twice. What sleep level 2 throws away (tensors that are not buffers) would be gone. Another
    thread would not help: as long as any thread is in a pool, torch.cuda.empty_cache() gives back
    nothing (`release_cached_blocks` of torch's CUDACachingAllocator.cpp). So the pool is left while
    `load` runs, and entered again.
    """
    model_config = vllm_config.model_config
    # vLLM 0.25 enters the pool if the allocator's flag is set, which sleep mode sets too.
    if not (
        getattr(model_config, "enable_cumem_allocator", False) or model_config.enable_sleep_mode
    ):
        return load()
    with _left(_entered()):
        return load()


def _entered() -> Any:
    """The torch.cuda.MemPool into which vLLM directs this thread's allocations, or None."""
    from vllm.device_allocator.cumem import CuMemAllocator

    allocator = CuMemAllocator.instance
    if allocator is None or allocator.current_tag == CuMemAllocator.default_tag:
        return None  # vLLM gives each of its pools another tag
    found = allocator.allocator_and_pools[allocator.current_tag]
    # Newer releases keep all pools of a tag, and enter the last one.
    pool, _ = found[-1] if isinstance(found, list) else found
    return pool


@contextlib.contextmanager
def _left(pool: Any) -> Iterator[None]:
    """Does what torch.cuda.use_mem_pool does at its end, then what it does at its begin."""
    if pool is None:
        yield
        return
    import torch

    memory: Any = torch.cuda.memory  # torch has no types for the functions that use_mem_pool calls
    device = torch.cuda.current_device()
    memory._cuda_endAllocateToPool(device, pool.id)
    memory._cuda_releasePool(device, pool.id)
    try:
        yield
    finally:
        memory._cuda_beginAllocateCurrentThreadToPool(device, pool.id)
