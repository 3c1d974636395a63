"""KV caches that move between engines: vLLM's KV connector `GpuwmConnector`.

    vllm serve MODEL --load-format gpuwm --kv-transfer-config '{"kv_connector": "GpuwmConnector",
        "kv_connector_module_path": "gpuwm.vllm.kv", "kv_role": "kv_both",
        "kv_connector_extra_config": {"region": "kv", "gib": 8}}'

Engines of one user copy full blocks of their KV caches into a region of gpuwm, device to device,
and out of it. A block is found by what it was computed from: all tokens up to its end, and
everything else on which KV depends (`gpuwm.vllm.kv.chain`). So an engine finds what any engine of
the machine has computed with the same weights. What is not there is computed, and nobody waits for
it.

`gpuwm.vllm.kv.settings` has the options, `gpuwm.vllm.kv.refusals` what can't be combined with it.
`scheduling` is the half in vLLM's scheduler, and `working` the half in each of its workers.

Importing this package imports neither vLLM nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connector import GpuwmConnector

NAME = "GpuwmConnector"  # the value of "kv_connector"

_LAZY = {NAME: "connector"}


if not TYPE_CHECKING:  # a checker would take any name for one of this module's

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = ["NAME", "GpuwmConnector"]
