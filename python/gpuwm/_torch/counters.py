"""Makes torch count a switch as a write.

torch has a counter for each tensor, which a write moves. A backward pass fails if a tensor that was
saved for it was written since. A switch changes memory without torch, so it moves the counters of
all tensors that lie in that memory. Views and `detach()` share the counter of their tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from .._c.handle import Handle

_counters: weakref.WeakKeyDictionary[Handle, set[weakref.ref[torch.Tensor]]]
_counters = weakref.WeakKeyDictionary()
_nothing = torch.empty(0)
_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]


def follow(handle: Handle, tensors: Iterable[torch.Tensor]) -> None:
    """Has `move` count for tensors that lie in the mapping's memory, and for all that share their
    counters. They may outlive the tensor objects: the storages keep the counters."""
    counters = _counters.setdefault(handle, set())
    for tensor in tensors:
        if torch.Tensor.is_inference(tensor):
            continue  # it has no counter, and no computation of gradients can save it
        counter = torch.Tensor.detach(tensor)
        _set_data(counter, _nothing)  # it shares the counter, and not the memory
        storage: Any = tensor.untyped_storage()
        storage.gpuwm_counters = (*getattr(storage, "gpuwm_counters", ()), counter)
        counters.add(weakref.ref(counter, counters.discard))


def move(handles: Iterable[Handle]) -> None:
    """Counts a write into every tensor of these mappings."""
    found = [ref() for handle in handles for ref in list(_counters.get(handle, ()))]
    torch.autograd.graph.increment_version([each for each in found if each is not None])
