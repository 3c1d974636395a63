"""Finds where something lies that a process has: the version's tensor behind a tensor of torch, and
the mapping behind a model."""

from __future__ import annotations

import torch
from torch import nn

from .. import errors
from .._c import lib
from .._mapping import Mapping
from .._tensor import Ref
from . import registry
from .tensors import origin_of, sent


def ref(tensor: torch.Tensor) -> Ref:
    """A reference to a tensor, or a view of one, that lies in a version. Raises Invalid if it does
    not."""
    if not isinstance(tensor, torch.Tensor):
        raise lib.wrong("tensor", tensor, "a tensor of torch: mapping.ref(name) needs none")
    origin = origin_of(tensor)
    if origin is None:
        raise errors.Invalid(
            "the tensor lies in no version that gpuwm attached", "publish it, or send its bytes"
        )
    return Ref(*sent(origin, tensor))


def mapping_of(model: nn.Module) -> Mapping:
    """The mapping that a model was bound to: by `bind`, `build`, `publish` or
    `gpuwm.transformers.from_pretrained`, or when it came through multiprocessing.

    Returns the object that `bind` was called on, if it lives and was not dropped, else another
    mapping with the same lease. `switch`, `check` and `verify` of both act on the model. Raises
    Invalid if nothing of the model lies in a version, or if parts of it are bound to several, which
    the message names.
    """
    found = registry.handles_of(model)
    if not found:
        raise errors.Invalid(
            f"nothing of the {type(model).__name__} lies in a version",
            "bind it first: gpuwm.attach(ref).bind(model)",
        )
    if len(found) > 1:
        versions = sorted({handle.where.label for handle in found})
        raise errors.Invalid(
            f"the {type(model).__name__} is bound to {len(found)} mappings, of "
            + ", ".join(versions),
            "ask for a module of it that is bound to one",
        )
    (handle,) = found
    mapping = handle.mapping() if handle.mapping is not None else None
    return mapping if mapping is not None and mapping._handle is handle else Mapping(handle)
