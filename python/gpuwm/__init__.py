"""gpuwm: model weights that are loaded once and mapped by many.

    import gpuwm
    w = gpuwm.attach("llama@prod")     # a Mapping of tensors, shared, under a lease
    w["model.norm.weight"].torch()     # in place: nothing is copied
    w.state_dict()                     # all of them

Neither torch nor NumPy is needed to import it; what makes their tensors imports them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._events import Event, Events
from ._handle import TensorInfo
from ._lib import __version__
from .attaching import attach, attach_async
from .client import Client, Device, Job, Replaced, connect, events
from .copies import Copies
from .errors import (
    Busy,
    Cancelled,
    Closed,
    Damaged,
    Disconnected,
    Draining,
    Error,
    Exists,
    InChild,
    Invalid,
    LibraryError,
    Lost,
    Mismatch,
    NoDevice,
    NoRoom,
    NoTensor,
    NotFound,
    Quota,
    Refused,
    TimedOut,
    Unreachable,
    Unsupported,
)
from .mapping import Mapping, Version
from .modes import obtain
from .publishing import publish, share
from .references import Ref
from .tensor import Slice, Tensor

if TYPE_CHECKING:
    from . import transformers
    from .binding import BindError, BindResult
    from .building import build
    from .checking import CheckResult
    from .guards import WriteError
    from .init import Unbound, empty_init
    from .passing import ref

# What needs torch is imported when it is first asked for.
_WITH_TORCH = {
    "BindError": "binding",
    "BindResult": "binding",
    "CheckResult": "checking",
    "Unbound": "init",
    "WriteError": "guards",
    "build": "building",
    "empty_init": "init",
    "ref": "passing",
}


def __getattr__(name: str) -> Any:
    if name == "transformers":
        return importlib.import_module(f"{__name__}.transformers")
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unsupported(f"gpuwm.{name} needs torch, and there is none", "install torch") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "BindError",
    "BindResult",
    "Busy",
    "Cancelled",
    "CheckResult",
    "Client",
    "Closed",
    "Copies",
    "Damaged",
    "Device",
    "Disconnected",
    "Draining",
    "Error",
    "Event",
    "Events",
    "Exists",
    "InChild",
    "Invalid",
    "Job",
    "LibraryError",
    "Lost",
    "Mapping",
    "Mismatch",
    "NoDevice",
    "NoRoom",
    "NoTensor",
    "NotFound",
    "Quota",
    "Ref",
    "Refused",
    "Replaced",
    "Slice",
    "Tensor",
    "TensorInfo",
    "TimedOut",
    "Unbound",
    "Unreachable",
    "Unsupported",
    "Version",
    "WriteError",
    "__version__",
    "attach",
    "attach_async",
    "build",
    "connect",
    "empty_init",
    "events",
    "obtain",
    "publish",
    "ref",
    "share",
    "transformers",
]
