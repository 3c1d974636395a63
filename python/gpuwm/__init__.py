"""gpuwm: model weights that are loaded once and mapped by many.

    import gpuwm
    w = gpuwm.attach("llama@prod")     # a Mapping of tensors, shared, under a lease
    w["model.norm.weight"].torch()     # in place: nothing is copied
    w.state_dict()                     # all of them

Neither torch nor NumPy is needed to import it; what makes their tensors imports them.
"""

from ._events import Event, Events
from ._handle import TensorInfo
from ._lib import __version__
from .attaching import attach, attach_async
from .client import Client, Device, Job, connect, events
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
from .tensor import Slice, Tensor

__all__ = [
    "Busy",
    "Cancelled",
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
    "Refused",
    "Slice",
    "Tensor",
    "TensorInfo",
    "TimedOut",
    "Unreachable",
    "Unsupported",
    "Version",
    "__version__",
    "attach",
    "attach_async",
    "connect",
    "events",
]
