"""Where vLLM keeps what it compiles, and what that depends on: `gpuwm.engines.caches`."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

from ..engines import caches as shared
from ..engines.caches import Caches
from . import keys


def caches(vllm_config: Any, device_kind: str) -> Caches:
    """Raises the errors of `caches.key`."""
    roots = _roots()
    return Caches(
        roots,
        shared.key(
            f"vllm {importlib.metadata.version('vllm')}",
            keys.PACKAGES,
            # engines with data parallelism have one hash, and each has folders of its own
            f"{vllm_config.compute_hash()} {vllm_config.parallel_config.data_parallel_rank}",
            device_kind == "cuda",
            roots,
        ),
    )


def _roots() -> dict[str, str]:
    """Folders of `caches.folders`, but for those that vLLM sets."""
    get = os.environ.get
    home = get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = os.path.expanduser(get("VLLM_CACHE_ROOT") or os.path.join(home, "vllm"))
    return {
        **shared.folders(),
        "vllm": os.path.join(root, "torch_compile_cache"),
        "deep_gemm": get("DG_JIT_CACHE_DIR") or os.path.join(root, "deep_gemm"),
        "autotune": get("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR")
        or os.path.join(root, "flashinfer_autotune_cache"),
    }


def keep(loaded: Any) -> None:
    """Call it in all ranks when they have compiled. loaded: of `model_loader.all_loaded`."""
    for each in loaded:
        shared.write(each.engine, each.mapping.version)
