"""The KV cache of an engine in a standby group: it has addresses when the engine starts, and memory
when the engine takes over.

Besides an engine that serves there is no memory for a second KV cache. So a standby engine reserves
the addresses of its whole cache, with one small block mapped at all of them. It warms up and
captures its CUDA graphs there, and gives the block back. When the other engine is gone, it gets
memory at the same addresses. Until then it can compute nothing, and its API server answers no
request: `gpuwm.vllm.gate`.

vLLM allocates its cache as `torch.zeros(size, dtype=torch.int8, device=…)`, once for each
KVCacheTensor or, from vLLM 0.29 on, once for all. `Cache.reserved` gives it parts of the
reservation instead. Nothing else that vLLM
allocates meanwhile comes from there: all addresses read the same block, so a tensor of indices
there could lead kernels to wrong addresses.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .. import errors
from .._c.reservation import Reservation
from . import releases
from .memory import gib

log: logging.Logger = logging.getLogger("vllm.gpuwm")
ALIGN = 512  # in bytes; torch aligns its allocations in the same way


class Cache:
    """The cache of one rank. kv_cache_config: vLLM's KVCacheConfig. device_id: gpuwmd's name of the
    device. Raises the errors of Reservation."""

    def __init__(self, kv_cache_config: Any, device_id: str, device: torch.device) -> None:
        self._device = device
        self._sizes = releases.cache_sizes(kv_cache_config)
        self._missing = len(self._sizes)
        begin = time.perf_counter()
        self._reservation = Reservation(device_id, sum(map(_aligned, self._sizes)))
        log.info(
            "gpuwm: %s GiB of addresses are reserved for the KV cache in %.3f s, and get memory "
            "when this engine takes over",
            gib(self._reservation.nbytes),
            time.perf_counter() - begin,
        )

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Inside, vLLM allocates its KV cache in the reservation. Raises Unsupported if it
        allocated another one."""
        parts = _Parts(self._reservation, self._sizes, self._device)
        with parts:
            yield
        self._missing = parts.missing()
        self.check_reserved()

    def check_reserved(self) -> None:
        """Raises Unsupported if a part of the cache was not allocated in the reservation."""
        if self._missing:
            raise errors.Unsupported(
                f"this vLLM allocates its KV cache in another way: {self._missing} of "
                f"{len(self._sizes)} tensors did not come to the addresses that are reserved",
                "start the engine without a standby",
            )

    def vacate(self) -> None:
        """Gives the block back, when the engine has warmed up and captured its graphs. Until
        `occupy` has returned, nothing may be computed. Raises the errors of Reservation.vacate."""
        self._reservation.vacate()

    def occupy(self, wait: float) -> dict[str, Any]:
        """Gets memory for the cache. Returns `bytes` and `seconds`. wait and errors: as in
        Reservation.occupy."""
        begin = time.perf_counter()
        self._reservation.occupy(wait)
        seconds = time.perf_counter() - begin
        size = self._reservation.nbytes
        log.info("gpuwm: the KV cache has its %s GiB of memory after %.3f s", gib(size), seconds)
        return {"bytes": size, "seconds": seconds}


class _Parts(TorchFunctionMode):
    """Answers the calls that allocate the cache. The offsets are in the order of the calls."""

    def __init__(self, reservation: Reservation, sizes: list[int], device: torch.device) -> None:
        super().__init__()
        self._reservation, self._device = reservation, device
        self._open = Counter(sizes)
        self._offset = 0

    def missing(self) -> int:
        return self._open.total()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func is torch.zeros and self._is_cache(args, named):
            return self._take(int(args[0]))
        return func(*args, **named)

    def _is_cache(self, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        return (
            len(args) == 1
            and isinstance(args[0], int)
            and named.get("dtype") is torch.int8
            and named.get("device") == self._device
            and self._open[args[0]] > 0
        )

    def _take(self, size: int) -> torch.Tensor:
        self._open[size] -= 1
        offset, self._offset = self._offset, self._offset + _aligned(size)
        return self._reservation.bytes_at(offset, size, self._device)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def check(vllm_config: Any) -> None:
    """Raises Unsupported if an engine of a standby group can't have this configuration."""
    if vllm_config.kv_transfer_config is not None:
        raise errors.Unsupported(
            "a KV connector registers the cache's memory, which a standby engine gets later",
            "start it without --kv-transfer-config",
        )
    media = vllm_config.model_config.multimodal_config
    if media is not None and media.mm_ipc_gpu_memory_gb > 0:
        raise errors.Unsupported(
            "an API server that decodes on the GPU has memory there, and no takeover waits for it",
            "start it without --mm-ipc-gpu-memory-gb",
        )
    if vllm_config.model_config.enable_sleep_mode:
        raise errors.Unsupported(
            "vLLM's sleep mode frees memory that a standby engine takes from gpuwm",
            "start it without --enable-sleep-mode: a standby engine has no memory to free",
        )
