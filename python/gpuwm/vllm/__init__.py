"""vLLM on shared weights: `vllm serve MODEL --load-format gpuwm`.

vLLM finds this package through the entry point `gpuwm` of the group `vllm.general_plugins`, and
calls `register` in each of its processes. `gpuwm.vllm.model_loader` says what the load format does,
and which options it has. vLLM before 0.32 does not count weights outside of its own memory, and no
release knows of other engines on its GPU: `gpuwm.vllm.Worker` (`--worker-cls gpuwm.vllm.Worker`)
gives them the right memory figures. `gpuwm.vllm.releases` has what differs between releases.
`switch` moves a running engine to other weights; its ranks need `gpuwm.vllm.Extension`. `publisher`
makes such weights of a trainer's tensors. `Control` lets an operator park and wake a server.

Importing this package imports neither vLLM nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .. import _installation  # noqa: F401 (it raises where another project's gpuwm is)

if TYPE_CHECKING:
    from ._switch import StillPaused, Switched, switch, switch_async
    from .controlled import Control
    from .extension import Extension
    from .trainer import Published, Publisher, publisher
    from .worker import Worker

FORMAT = "gpuwm"  # the value of --load-format, and the backend of --weight-transfer-config


def register() -> None:
    """Makes the load format `gpuwm` known to vLLM in this process, the KV connector
    `GpuwmConnector`, and the backends `gpuwm` of weight transfer and of sleep mode if this vLLM has
    such backends. A second call does nothing.

    vLLM calls this function before it resolves `--worker-cls`, also if it uses nothing of gpuwm. So
    the function never raises: vLLM would not start. If something can't be registered, the log says
    why, and vLLM refuses the option that names it.
    """
    for what, step in {
        f"load format {FORMAT}": _register_loader,
        "KV connector GpuwmConnector": _register_connector,
        f"weight transfer backend {FORMAT}": _register_transfer,
        f"sleep-mode backend {FORMAT}": _register_sleep,
    }.items():
        try:
            step()
        except Exception as error:
            import logging

            log = logging.getLogger("vllm.gpuwm")
            log.error("gpuwm: this vLLM can't have the %s: %r", what, error)


def _register_loader() -> None:
    from vllm.model_executor import model_loader

    from .model_loader import Loader

    known = getattr(model_loader, "_LOAD_FORMAT_TO_MODEL_LOADER", {})
    if known.get(FORMAT) is not Loader:  # vLLM warns if a format is registered twice
        model_loader.register_model_loader(FORMAT)(Loader)


def _register_connector() -> None:
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory as Factory
    except ImportError:  # a vLLM with other connectors
        return
    from . import kv

    if kv.NAME not in getattr(Factory, "_registry", {}):  # vLLM refuses a second registration
        Factory.register_connector(kv.NAME, kv.__name__, kv.NAME)


def _register_transfer() -> None:
    try:
        from vllm.distributed.weight_transfer import WeightTransferEngineFactory as Factory
    except ImportError:  # a vLLM without weight transfer
        return
    if FORMAT not in getattr(Factory, "_registry", {}):  # vLLM refuses a second registration
        Factory.register_engine(FORMAT, f"{__name__}.transfer", "Engine")


def _register_sleep() -> None:
    try:
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory as Factory
    except ImportError:  # a vLLM without backends of sleep mode
        return
    if FORMAT not in getattr(Factory, "_registry", {}):  # vLLM refuses a second registration
        Factory.register_backend(FORMAT, f"{__name__}.sleep_mode", "Backend")


# Names that are imported when they are first used, and their modules.
_LAZY = {
    "Control": "controlled",
    "Extension": "extension",
    "Published": "trainer",
    "Publisher": "trainer",
    "StillPaused": "_switch",
    "Switched": "_switch",
    "Worker": "worker",
    "publisher": "trainer",
    "switch": "_switch",
    "switch_async": "_switch",
}


if not TYPE_CHECKING:  # a checker would take any name for one of this module's

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "FORMAT",
    "Control",
    "Extension",
    "Published",
    "Publisher",
    "StillPaused",
    "Switched",
    "Worker",
    "publisher",
    "register",
    "switch",
    "switch_async",
]
