"""Whether a parameter or buffer of a model fits a tensor of a version. If not, the reason is a
text."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from . import extents, parametrized, sharded
from .init import is_plain
from .places import Place, modules_of, places


def misfit(place: Place, source: torch.Tensor) -> str | None:
    """Why `source` can't take the place, shared or copied."""
    tensor = place.tensor
    if (
        tensor.is_meta
        and tensor.dtype == source.dtype
        and tensor.size() == source.size()
        and is_plain(tensor)
    ):
        return None  # as most do
    return (
        _not_plain(place)
        or _other_shape(place, source)
        or _other_dtype(place, source)
        or _other_device(place, source)
    )


def other_identity(place: Place, source: torch.Tensor, why: str) -> str | None:
    """Why the object in the model can't get the memory of `source`. why: the result of
    unswappable."""
    tensor = place.tensor
    if not tensor.is_meta and tensor.device == source.device:
        return None
    return (
        f"identity: {place.name} can't get memory and stay the same object, since {why}: bind "
        "before that is made"
    )


def unswappable(tensor: torch.Tensor) -> str | None:
    """Why torch.utils.swap_tensors refuses: other objects would go on with the old content."""
    if weakref.getweakrefcount(tensor):
        return "something has a weak reference to it"
    # One reference is its own. An accumulator of gradients may hold another.
    holders: int = tensor._use_count()  # type: ignore[attr-defined]
    if holders > 1 and holders > (2 if tensor.requires_grad else 1):
        return "a computation of gradients holds it"
    return None


def is_placeholder(place: Place) -> bool:
    """Whether the tensor stands for one of any shape: it is empty, or a parameter without
    dimensions that has memory."""
    tensor = place.tensor
    return tensor.numel() == 0 or not (place.is_buffer or tensor.is_meta or tensor.dim())


def fillable(tensor: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether values can be written into the buffer, which then keeps its memory and the views of
    it."""
    return (
        not tensor.is_meta
        and tensor.device == source.device
        and tensor.size() == source.size()
        and not any(s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.size(), strict=True))
        and not (tensor.is_inference() and not torch.is_inference_mode_enabled())
    )


def different(sources: dict[str, torch.Tensor], names: Sequence[str]) -> str | None:
    """Why names that are one tensor of the model can't be: the version has different tensors under
    them."""
    first = sources[names[0]]
    for name in names[1:]:
        if not _same_bytes(first, sources[name]):
            return (
                f"tied: {names[0]} and {name} are one tensor of the model and two different ones "
                "of the version: build the model untied (models of transformers: "
                "gpuwm.transformers.from_pretrained does so)"
            )
    return None


def other_prefix(missing: Sequence[str], unexpected: Sequence[str]) -> str | None:
    """What to bind instead, if all names of the one are below a module of the other."""
    wrapped = _heads(missing, unexpected)
    if wrapped is not None:
        return f"the version has the names without {wrapped!r}: bind model.{wrapped}"
    inner = _heads(unexpected, missing)
    if inner is not None:
        return (
            f"the version has the names below {inner!r}: "
            f"bind torch.nn.ModuleDict({{{inner!r}: model}})"
        )
    return None


def _heads(longer: Sequence[str], shorter: Sequence[str]) -> str | None:
    """If one of `longer` is in `shorter` without its first part: that part."""
    names = set(shorter)
    for name in longer:
        head, _, rest = name.partition(".")
        if rest in names:
            return head
    return None


def computed_too_early(
    modules: Iterable[tuple[str, nn.Module]], taken: Container[int] = ()
) -> Iterator[str]:
    """Attributes without memory that `__init__` computed from parameters, and that nobody would
    compute again: tensors, also those in containers. taken: the ids of those that get
    memory."""
    for prefix, module in modules:
        for key, value in module.__dict__.items():
            if type(value) not in _MAY_HOLD or key in _TORCHS_OWN:
                continue
            if _lacks_memory(value, taken) and not _recomputed(module, key):
                yield f"no memory: attribute {prefix}{key}{_EARLY}"


_EARLY = ": `__init__` made it of a parameter, or on its device"
_MAY_HOLD = (torch.Tensor, list, tuple, dict, set, frozenset, collections.deque)
# What torch keeps in a module for itself; RNNs have the last.
_TORCHS_OWN = nn.Module().__dict__.keys() | {"_flat_weights"}


def _lacks_memory(value: Any, taken: Container[int]) -> bool:
    left, seen = [value], {id(value)}
    while left:
        each = left.pop()
        if type(each) is torch.Tensor:
            if each.is_meta and id(each) not in taken:
                return True
        elif type(each) in _MAY_HOLD:
            held = [h for h in (each.values() if type(each) is dict else each) if id(h) not in seen]
            seen.update(map(id, held))
            left += held
    return False


def lost(model: nn.Module, stored: Container[str]) -> str | None:
    """Why bind can't give memory to all of a model that was built without: what `__init__` made of
    parameters, if the version does not have it; or what holds one. stored: names of the version's
    tensors."""
    modules = modules_of(model)
    with let_go(module for _, module in modules):
        for place in places(modules):
            if not place.tensor.is_meta:
                continue
            if place.is_buffer and not any(name in stored for name in place.names):
                return no_memory(place)
            if held := unswappable(place.tensor):
                return f"{place.name} can't get memory later, since {held}"
    return next(computed_too_early(modules), None) or _meta_device(modules)


def _meta_device(modules: Iterable[tuple[str, nn.Module]]) -> str | None:
    """An attribute that says on which device the parameters were in empty_init."""
    for prefix, module in modules:
        for key, value in module.__dict__.items():
            if type(value) is torch.device and value.type == "meta":
                return f"attribute {prefix}{key} is the device meta, where no values are"
    return None


def no_memory(place: Place) -> str:
    """The problem of a place without memory that the version does not have."""
    kind = "buffer" if place.is_buffer else "parameter"
    early = _EARLY if place.is_buffer else ""
    return f"no memory: {kind} {place.name} has none, and the version has no {place.name}{early}"


@contextmanager
def let_go(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, torch's own modules don't hold their parameters, so that these can be swapped.

    RNNs keep weak references, to see whether their weights are the same objects: they will be.
    (RNNs let go of them in their own `to()`, too.) Weight norm and spectral norm compute the weight
    anew in each call, and keep the graph of the last call.
    """
    rnns = []
    for module in modules:
        if isinstance(module, nn.RNNBase):
            rnns.append(module)
            module._flat_weight_refs = []
        elif module._forward_pre_hooks:
            _drop_graphs(module)
    try:
        yield
    finally:
        for rnn in rnns:
            rnn._flat_weight_refs = [
                None if weight is None else weakref.ref(weight) for weight in rnn._flat_weights
            ]


def _drop_graphs(module: nn.Module) -> None:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, parametrized.NORMS):
            weight = module.__dict__.get(hook.name)
            if weight is not None:
                module.__dict__[hook.name] = weight.detach()


# ---- one reason each --------------------------------------------------------------------------


def _not_plain(place: Place) -> str | None:
    tensor = place.tensor
    if is_part := sharded.said(tensor):
        return f"sharded: {place.name} is {is_part}"
    if is_plain(tensor):
        return None
    if is_lazy(tensor):
        return (
            f"lazy: {place.name} has no shape before the first call: build the model with the "
            "module that isn't lazy"
        )
    return f"class: {place.name} is a {type(tensor).__name__}, not plain data"


def _other_shape(place: Place, source: torch.Tensor) -> str | None:
    if place.tensor.size() == source.size() or is_placeholder(place):
        return None
    mine, other = list(place.tensor.size()), list(source.size())
    return f"shape: {place.name} is {mine} in the model, {other} in the version"


def _other_dtype(place: Place, source: torch.Tensor) -> str | None:
    if place.tensor.dtype == source.dtype:
        return None
    mine, other = place.tensor.dtype, source.dtype
    return f"dtype: {place.name} is {mine} in the model, {other} in the version"


def _other_device(place: Place, source: torch.Tensor) -> str | None:
    device = place.tensor.device
    if device == source.device or place.tensor.is_meta or is_placeholder(place):
        return None
    if place.is_buffer and device.type == "cpu":
        return None  # as `__init__` left it: bind moves it
    return f"device: {place.name} is on {device} in the model, on {source.device} in the version"


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    if one.dtype != other.dtype or one.size() != other.size() or one.stride() != other.stride():
        return False
    if one.untyped_storage().nbytes() != other.untyped_storage().nbytes():
        return False
    a, b = (torch.empty(0, dtype=torch.uint8, device=t.device) for t in (one, other))
    a.set_(one.untyped_storage())
    b.set_(other.untyped_storage())
    return torch.equal(a, b)


def equal_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape have the same elements."""
    return torch.equal(extents.bytes_of(one), extents.bytes_of(other))


def _recomputed(module: nn.Module, key: str) -> bool:
    """Whether torch's own weight norm or spectral norm makes this weight anew in each call."""
    return any(f"{key}_{made_from}" in module._parameters for made_from in ("orig", "v"))
