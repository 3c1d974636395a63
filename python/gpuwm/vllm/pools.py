"""Loading outside of vLLM's memory pool, which sleep mode and --enable-cumem-allocator bring."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def outside(vllm_config: Any, load: Callable[[], T]) -> T:
    """`load()`, with nothing that it makes in vLLM's sleeping pool; what it raises.

    With that pool vLLM's worker directs what its thread allocates into a pool that gives no block
    back before the worker has left the pool's context. A model that is published in there would be
    held twice, and what sleep level 2 throws away (tensors that are no buffers) would be gone.
    torch directs only what the thread that entered the pool allocates, so `load` gets a thread of
    its own. The calling thread waits, also for what `load` queued on the GPU: each thread has a
    current stream of its own, and the caller's does not wait for that of `load`. If the handler of
    a signal raises there, `load` goes on by itself, and ends with the process.
    """
    model_config = vllm_config.model_config
    # vLLM 0.25 enters the pool for the flag of the allocator, which sleep mode sets as well; XPU
    # goes by sleep mode.
    pool = getattr(model_config, "enable_cumem_allocator", False)
    if not (pool or model_config.enable_sleep_mode):
        return load()
    import torch

    device = torch.cuda.current_device() if torch.cuda.is_available() else None
    context = contextvars.copy_context()
    outcome: list[Any] = [None, None]

    def run() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)
            outcome[0] = context.run(load)
            if device is not None:
                torch.cuda.synchronize(device)
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(target=run, name="gpuwm load", daemon=True)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result
