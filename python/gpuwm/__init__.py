"""gpuwm: model weights that are loaded once and mapped by many.

    import gpuwm
    w = gpuwm.attach("llama@prod")     # a Mapping of tensors, shared, under a lease
    w["model.norm.weight"].torch()     # in place: nothing is copied
    w.state_dict()                     # all of them

What programs call, in the order in which they come to need it:

    attach, attach_async     take a lease on a version, and map it: a Mapping, or Copies
    connect                  gpuwmd itself: a Client, which lists, loads, moves aliases and retires
    events                   what happens in gpuwmd: Events
    save                     a version as safetensors files
    files                    a version's other files (config, tokenizer) in a folder
    empty_init               models of torch whose parameters have no memory yet: then Mapping.bind
    build                    a model on a version, in one call
    transformers             models of Hugging Face transformers: gpuwm.transformers.from_pretrained
    mapping_of               a model's Mapping: then Mapping.switch, check and verify
    publish                  a version of what this process has
    share                    one tensor, for as long as any process has it
    obtain                   a version that one process makes and the others attach to
    image                    a module as it is after loading: gpuwm.image.publish and install
    builder                  a function whose results are made once and shared
    ref                      a tensor as a reference, for other processes: a Ref
    wrap, unwrap             tensors in any structure, for other processes
    Pool, Queue              memory for tensors that pass between processes
    Blocks, Scratch          caches of blocks, and memory that processes use in turn
    handles                  a version's memory for processes without gpuwm
    set_progress             who is told of what takes time: loads, waits, publishes

All errors are subclasses of Error. gpuwm.builders, gpuwm.vllm and gpuwm.sglang are modules of
their own, to be imported by name.

What gpuwm did is logged to the logger "gpuwm" and those below it, at the level INFO.

The import needs neither torch nor NumPy. Functions that make tensors of these packages import them.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from . import _needs
from ._attach import attach, attach_async
from ._c.dtypes import DType
from ._c.events import Event, Events
from ._c.handle import TensorInfo
from ._c.lib import __version__
from ._client import Client, Device, Job, Replaced
from ._connection import connect, events
from ._copies import Copies
from ._election import obtain
from ._files import files
from ._handles import Handles, handles
from ._mapping import Mapping
from ._publish.publish import publish, share
from ._save import save
from ._shown.progress import Progress, set_progress
from ._shown.tables import Listing
from ._tensor import Bytes, Ref, Slice, Tensor
from ._version import Version
from .errors import (
    Already,
    Busy,
    Cancelled,
    Closed,
    Damaged,
    Disconnected,
    Draining,
    Ended,
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
    NotInstalled,
    NotOpen,
    NotYet,
    OwnerDied,
    PoolFull,
    Quota,
    Refused,
    TimedOut,
    TooLarge,
    Unreachable,
    Unsupported,
)
from .transport import Blocks, Pool, Queue, Scratch, TensorRef, unwrap, wrap

if TYPE_CHECKING:
    from . import image, transformers
    from ._torch.bind import BindError, BindResult
    from ._torch.build import build
    from ._torch.check import CheckResult
    from ._torch.guards import WriteError
    from ._torch.init import Unbound, empty_init
    from ._torch.lookup import mapping_of, ref
    from .builders import builder

# These need torch. Their modules are imported when they are first used.
_WITH_TORCH = {
    "BindError": "_torch.bind",
    "BindResult": "_torch.bind",
    "CheckResult": "_torch.check",
    "Unbound": "_torch.init",
    "WriteError": "_torch.guards",
    "build": "_torch.build",
    "builder": "builders",
    "empty_init": "_torch.init",
    "mapping_of": "_torch.lookup",
    "ref": "_torch.lookup",
}
_MODULES = ("image", "transformers")


class _NotThere(Unsupported, AttributeError):
    """A NotInstalled for hasattr() and help(), which go on after an AttributeError."""

    name: str


if not TYPE_CHECKING:  # a checker would take any name for one of this module's

    def __getattr__(name: str) -> Any:
        if name not in _WITH_TORCH and name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            if name in _MODULES:
                return importlib.import_module(f"{__name__}.{name}")
            _needs.torch(f"gpuwm.{name}")
        except NotInstalled as error:
            if _is_importing(sys._getframe(1)):
                raise
            raise _NotThere(error.message, error.detail) from None
        return getattr(importlib.import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)


def _is_importing(frame: types.FrameType) -> bool:
    """Whether the frame is at `from gpuwm import build`. Python turns any AttributeError there into
    an ImportError without gpuwm's message."""
    import dis

    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Already",
    "BindError",
    "BindResult",
    "Blocks",
    "Busy",
    "Bytes",
    "Cancelled",
    "CheckResult",
    "Client",
    "Closed",
    "Copies",
    "DType",
    "Damaged",
    "Device",
    "Disconnected",
    "Draining",
    "Ended",
    "Error",
    "Event",
    "Events",
    "Exists",
    "Handles",
    "InChild",
    "Invalid",
    "Job",
    "LibraryError",
    "Listing",
    "Lost",
    "Mapping",
    "Mismatch",
    "NoDevice",
    "NoRoom",
    "NoTensor",
    "NotFound",
    "NotInstalled",
    "NotOpen",
    "NotYet",
    "OwnerDied",
    "Pool",
    "PoolFull",
    "Progress",
    "Queue",
    "Quota",
    "Ref",
    "Refused",
    "Replaced",
    "Scratch",
    "Slice",
    "Tensor",
    "TensorInfo",
    "TensorRef",
    "TimedOut",
    "TooLarge",
    "Unbound",
    "Unreachable",
    "Unsupported",
    "Version",
    "WriteError",
    "__version__",
    "attach",
    "attach_async",
    "build",
    "builder",
    "connect",
    "empty_init",
    "events",
    "files",
    "handles",
    "image",
    "mapping_of",
    "obtain",
    "publish",
    "ref",
    "save",
    "set_progress",
    "share",
    "transformers",
    "unwrap",
    "wrap",
]
