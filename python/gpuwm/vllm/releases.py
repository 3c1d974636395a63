"""What differs between the releases of vLLM that gpuwm supports. All of it is here.

The functions ask what the vLLM that runs *has*, and never which number it bears. A public seam is
used where it does what gpuwm needs; what a release without the seam needs instead is here too, or
in the method that asks.

- `MemoryProfilingResult.total_consumed` (0.27): the profile counts what the GPU lost. `worker`.
- `initialize_kv_cache(kv_cache_allocation_context=)` (0.29), and one tensor that has all KV caches.
  `worker`, `cache`.
- `BaseModelLoader.get_external_weight_memory` (0.32): vLLM asks how large weights are. `worker`.
- `supports_sleep_mode`, `unregister_kv_caches`, `restore_kv_caches` of a connector (0.33). `kv`.

Two seams do not do what gpuwm needs. `supports_pre_processed_weights` (0.30): `postprocess` says
why. `KVConnectorBase_V1.get_mem_pool_context` (0.31) gives a pool for a whole KV cache; the
connector needs no other memory for it, and an engine of a standby group has no connector.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

from .. import errors

# The releases in which we have looked at everything that gpuwm overrides, calls or guards.
SUPPORTED = (
    *("0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
)
ALLOCATION_CONTEXT = "kv_cache_allocation_context"


def version() -> str:
    return importlib.metadata.version("vllm")


def unsupported(what: str, problems: Iterable[str]) -> errors.Unsupported:
    """The error for a vLLM that lacks what `what` needs."""
    return errors.Unsupported(
        f"{what} does not fit vLLM {version()}: {'; '.join(problems)}",
        f"use a release of vLLM that gpuwm supports: {', '.join(SUPPORTED)}",
    )


# ---- what this vLLM has -------------------------------------------------------------------------


def asks_loader() -> bool:
    """Whether vLLM asks the loader how large the weights are that other processes hold."""
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    return hasattr(BaseModelLoader, "get_external_weight_memory")


def counts_consumed() -> bool:
    """Whether vLLM's profile counts all that the GPU lost since the snapshot of the start. Else it
    adds up what torch allocated for weights, and what grew beside torch."""
    from vllm.utils.mem_utils import MemoryProfilingResult

    return "total_consumed" in MemoryProfilingResult.__dataclass_fields__


def takes_allocation_context(initialize_kv_cache: Any) -> bool:
    """Whether this method of a model runner allocates the KV cache in a context of the caller."""
    return ALLOCATION_CONTEXT in inspect.signature(initialize_kv_cache).parameters


def cache_sizes(kv_cache_config: Any) -> list[int]:
    """The sizes of the tensors that vLLM allocates for a KVCacheConfig."""
    tensors = kv_cache_config.kv_cache_tensors
    if any(hasattr(tensor, "layer_stride") for tensor in tensors):
        return sorted({int(tensor.size) for tensor in tensors})  # all of them lie in one
    packed = [int(tensor.size) for tensor in tensors if tensor.block_stride > 0]
    return [int(tensor.size) for tensor in tensors if tensor.block_stride <= 0] + packed[:1]


def attention_check() -> Callable[[Any], bool]:
    """Returns a function that tells whether vLLM post-processes the weights of a module after those
    of all other layers."""
    from vllm.model_executor.model_loader import utils

    if (check := getattr(utils, "is_deferred_attention_layer", None)) is not None:  # 0.28
        found: Callable[[Any], bool] = check
        return found
    names = ("Attention", "MLAAttention", "MMEncoderAttention", "AttentionLayerBase")
    kinds = tuple(getattr(utils, name) for name in names if hasattr(utils, name))
    return lambda module: (
        isinstance(module, kinds) and hasattr(module, "process_weights_after_loading")
    )


def processes_model() -> bool:
    """Whether vLLM ends its post-processing with a method of the model itself (0.27)."""
    from vllm.model_executor.model_loader import utils

    text = inspect.getsource(utils.process_weights_after_loading)
    return "model.process_weights_after_loading()" in text


# ---- what gpuwm overrides -----------------------------------------------------------------------

# What the source of vLLM's methods must have, so that gpuwm.vllm.Worker can override them, or
# those that call them.
USES = (
    ("vllm.v1.worker.gpu_worker.Worker.init_device", ("request_memory(", "self.init_snapshot")),
    ("vllm.v1.worker.gpu_worker.Worker.load_model", ("self.model_runner.load_model(",)),
    (
        "vllm.v1.worker.gpu_worker.Worker.determine_available_memory",
        ("self.init_snapshot", "self.requested_memory", "memory_profiling("),
    ),
    (
        "vllm.v1.worker.gpu_worker.Worker.initialize_from_config",
        ("self.model_runner.initialize_kv_cache(",),
    ),
    ("vllm.v1.worker.gpu_worker.Worker.sleep", ("torch.accelerator.get_memory_info(",)),
    ("vllm.utils.mem_utils.MemorySnapshot.measure", ("torch.accelerator.get_memory_info(",)),
)
# The same, if vLLM asks the loader.
USES_ASKING = (
    (
        "vllm.v1.worker.gpu_worker.Worker.init_device",
        (".get_external_weight_memory(self.vllm_config)",),
    ),
)


def resolve(name: str) -> tuple[Any, Any]:
    """What the full name of a function or method stands for, and its owner: a module or a class.
    None and None if there is no such thing."""
    path, _, attribute = name.rpartition(".")
    try:
        owner: Any = importlib.import_module(path)
    except ImportError:
        module, _, kind = path.rpartition(".")
        try:
            owner = getattr(importlib.import_module(module), kind, None)
        except ImportError:
            return None, None
    found = vars(owner).get(attribute) if owner is not None else None
    return (None, None) if found is None else (found, owner)


def text_problems(uses: Iterable[tuple[str, Collection[str]]]) -> list[str]:
    """What is missing in the sources of vLLM's methods. uses: rows as those of `USES`."""
    problems = []
    for name, needed in uses:
        method, _ = resolve(name)
        source = "" if method is None else inspect.getsource(method)
        short = ".".join(name.split(".")[-2:])
        problems += [f"{short} does not use {text}" for text in needed if text not in source]
    return problems


def check_overrides(ours: type, theirs: type, own: Collection[str] = ()) -> None:
    """Raises Unsupported if a public method of `ours` overrides nothing in vLLM's class: nobody
    would call it. own: methods that vLLM's class need not have."""
    public = [
        name
        for name, value in vars(ours).items()
        if not name.startswith(("_", "gpu")) and name not in own and _is_method(value)
    ]
    missing = [name for name in public if not _is_method(getattr(theirs, name, None))]
    if missing:
        problems = [f"{theirs.__name__} has no {name}" for name in missing]
        raise unsupported(f"{ours.__module__}.{ours.__qualname__}", problems)


def _is_method(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, (classmethod, staticmethod))
