"""Compares what is gathered of a model with what the model itself would save: `state_dict()` may
have more than parameters and buffers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from .._publish.parts import Gathered
from . import extents, extra_state
from .init import is_plain
from .places import Place


class _Saved(NamedTuple):
    """What a module saves. prefix: of its names. items: by the rest of the name. places: its
    parameters and persistent buffers; with hooks also those of the modules below it."""

    prefix: str
    module: nn.Module
    items: dict[str, Any]
    places: Sequence[Place]


def compare(
    found: Gathered, modules: Sequence[tuple[str, nn.Module]], places: Sequence[Place]
) -> None:
    """Adds the modules' extra states, and a problem for all else that a module saves and that is
    none of `places`."""
    states: dict[str, Any] = {}
    takers = {
        prefix + extra_state.SUFFIX for prefix, module in modules if extra_state.takes(module)
    }
    for saved in _all_saved(found, modules, places):
        tensors: dict[str, torch.Tensor] = {}
        for key, value in saved.items.items():
            name = saved.prefix + key
            if extra_state.is_name(name):
                if name in takers:
                    states[name] = value
                else:
                    found.problems.append(f"{name}: no module has a set_extra_state that takes it")
            elif isinstance(value, torch.Tensor):
                tensors[key] = value
            elif value is not None:
                found.problems.append(f"{_said(saved, key)}: {_EXTRA}")
        found.problems += [
            f"{_said(saved, key)}: {_REGISTER}"
            for key in _unexplained(saved.prefix, tensors, saved.places)
        ]
    extra_state.add(found, states)


_EXTRA = "return it from get_extra_state(), and take it in set_extra_state()"
_REGISTER = (
    "register_buffer() it; or, if it is an attribute, publish with gpuwm.image; or publish the "
    "state_dict() with bind=False, and load_state_dict() it"
)


def _said(saved: _Saved, key: str) -> str:
    value = saved.items[key]
    what = f"a {type(value).__name__}"
    if isinstance(value, torch.Tensor):
        what = f"{value.dtype} {list(value.size())}"
    kind = type(saved.module).__name__
    return f"{saved.prefix}{key}: {kind} saves {what} that is no parameter or buffer"


# ---- what modules save -------------------------------------------------------------------------


def _all_saved(
    found: Gathered, modules: Sequence[tuple[str, nn.Module]], places: Sequence[Place]
) -> Iterator[_Saved]:
    """What each module saves that saves in its own way. The others save their parameters and
    buffers, so they need not be asked."""
    whole: list[str] = []  # prefixes of modules that were asked for all below them
    asked: set[int] = set()
    for prefix, module in modules:
        if id(module) in asked or any(prefix.startswith(above) for above in whole):
            continue
        asked.add(id(module))
        hook = _hook(module)
        if hook is not None:
            whole.append(prefix)
            if _is_in_group():
                found.problems.append(f"{prefix or 'the model'}: {_WAITS.format(hook)}")
                continue
            below = [place for place in places if any(n.startswith(prefix) for n in place.names)]
            yield _Saved(prefix, module, dict(module.state_dict()), below)
        elif _overrides(module, "_save_to_state_dict") or _overrides(module, "get_extra_state"):
            items: dict[str, Any] = {}
            module._save_to_state_dict(items, "", True)
            own = [place for place in places if any(each is module for each, _ in place.owners)]
            yield _Saved(prefix, module, items, own)


_WAITS = (
    "{} changes what state_dict() returns, and may wait for other ranks, so gpuwm does not call it "
    "while torch.distributed is initialised: let all ranks call state_dict(), and publish the "
    "result with bind=False"
)


def _overrides(module: nn.Module, name: str) -> bool:
    method = getattr(module, name)
    return getattr(method, "__func__", method) is not getattr(nn.Module, name)


def _hook(module: nn.Module) -> str | None:
    """What changes what a module and those below it save: the name of a hook or method, or None.
    Hooks of torch.nn only add versions."""
    if _overrides(module, "state_dict"):
        return f"{type(module).__name__}.state_dict"
    for hook in (*module._state_dict_hooks.values(), *module._state_dict_pre_hooks.values()):
        called: Any = getattr(hook, "hook", hook)  # torch wraps some
        said: Any = called if hasattr(called, "__qualname__") else type(called)
        if not said.__module__.startswith("torch.nn."):
            return f"the hook {said.__qualname__}"
    return None


def _is_in_group() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized()


# ---- which tensors are parameters or buffers ---------------------------------------------------


def _unexplained(
    prefix: str, tensors: Mapping[str, torch.Tensor], places: Sequence[Place]
) -> list[str]:
    """The keys of tensors that neither lie in the memory of a place nor are a copy of one, whatever
    their names: wrappers rename. A place is the original of at most one copy, since a scale may
    have the values of some norm's weight."""
    plain = [place for place in places if is_plain(place.tensor)]
    # Others can't be published, and are reported by themselves.
    others = {name for place in places if not is_plain(place.tensor) for name in place.names}
    by_storage: dict[Any, list[Place]] = defaultdict(list)
    for place in plain:
        by_storage[_storage(place.tensor)].append(place)
    unused = {id(place): place for place in plain}
    left: dict[str, torch.Tensor] = {}
    for key, tensor in tensors.items():
        near = by_storage[_storage(tensor)] if is_plain(tensor) else []
        holder = next((place for place in near if _lies_in(tensor, place.tensor)), None)
        if holder is not None:
            unused.pop(id(holder), None)
        elif tensor.numel() and not tensor.is_meta and prefix + key not in others:
            left[key] = tensor
    fits: tuple[Callable[[str, Place], bool], ...] = (
        lambda key, place: prefix + key in place.names,
        lambda key, place: True,
    )
    for is_candidate in fits:
        for key, tensor in list(left.items()):
            for place in list(unused.values()):
                if is_candidate(key, place) and _is_copy(tensor, place.tensor):
                    del unused[id(place)], left[key]
                    break
    return list(left)


def _storage(tensor: torch.Tensor) -> tuple[torch.device, int]:
    return tensor.device, tensor.untyped_storage().data_ptr()


def _lies_in(tensor: torch.Tensor, place: torch.Tensor) -> bool:
    begin, end = extents.addresses(place)
    first, last = extents.addresses(tensor)
    return begin <= first < last <= end


def _is_copy(tensor: torch.Tensor, place: torch.Tensor) -> bool:
    """Whether the tensor has the values of a place, perhaps in another dtype or on another
    device."""
    if not is_plain(tensor) or place.is_meta or tensor.size() != place.size():
        return False
    same = place.to(tensor.dtype)
    return torch.equal(extents.bytes_of(tensor.to(place.device)), extents.bytes_of(same))
