"""Finds what refers to what in a module: every place of an object that holds another one.

An *owner* is an object that is looked into: a module, a tensor (its attributes), a helper object
(instance dict and slots), a dict, list, tuple, set or deque, an array of NumPy, a
`functools.partial`, a bound method, or a function (its closure, its defaults and what was set on
it). A *slot* is one place of an owner, and has a kind and a key.
"""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import functools
import json
import types
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _python_dispatch

from . import arrays, values
from .kinds import SIMPLE, attributes_of, class_name, slots_of_class

# The kinds of slots. The first four are those of modules. Any object can have an ATTRIBUTE.
PARAMETER = "parameter"
BUFFER = "buffer"
TRANSIENT = "transient"  # a buffer that state_dict() leaves out
MODULE = "module"
ATTRIBUTE = "attribute"
ITEM = "item"
KEY = "key"  # an element of a set, or a key of a dict that is no plain value; counted from 0
VALUE = "value"  # what the dict has under the key of the same number
DATA = "data"  # all that an array has
CELL = "cell"  # a variable of a closure
DEFAULT = "default"  # a default of a function
CALL = "call"  # what a bound method or a partial calls, its arguments, and how a deque was made
NAMED = frozenset((PARAMETER, BUFFER, TRANSIENT, MODULE, ATTRIBUTE))  # these share one name space

# What torch keeps in a module for itself. Hooks belong to the caller, and are not recorded.
INTERNAL: frozenset[str] = frozenset(
    name for name in nn.Module().__dict__ if name.startswith("_") or name == "call_super_init"
) | {"_compiled_call_impl", "_flat_weight_refs"}

# What torch, Python and notebooks call to show an object. If a function of such a name was set on
# one object, it changes how that object is printed, and nothing that it computes.
DISPLAY = frozenset(
    ("extra_repr", "_get_name", "__repr__", "__str__", "_repr_html_", "_repr_mimebundle_")
)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


class Slot(NamedTuple):
    kind: str
    key: Any  # str, int, or another plain key of a dict
    value: Any


class Ignored:
    """Attributes that are neither recorded nor compared. globs: of their paths. Parameters, buffers
    and modules are never among them, and neither is what dicts, lists and tuples hold, unless an
    image can't have it."""

    def __init__(self, globs: Sequence[str] = ()) -> None:
        self.globs: tuple[str, ...] = tuple(globs)
        self._by_key: dict[str, list[str]] = {}

    def fits(self, name: str, key: str) -> bool:
        """Whether the attribute `key` of the owner at the path `name` is one of them."""
        globs = self._by_key.get(key)
        if globs is None:
            globs = self._by_key[key] = [glob for glob in self.globs if _may_end(glob, key)]
        if not globs:  # as in most cases
            return False
        path = step(name, ATTRIBUTE, key)
        return any(fnmatch.fnmatchcase(path, glob) for glob in globs)

    def fits_path(self, path: str) -> bool:
        """Whether what is at the path, and what no image can have, is one of them."""
        return any(fnmatch.fnmatchcase(path, glob) for glob in self.globs)


def _may_end(glob: str, key: str) -> bool:
    """Whether a path that ends with the key can match. Few do, and there are many paths."""
    end = glob.rpartition(".")[2]
    return any(wild in end for wild in "*?[]") or key.endswith(end)


# ---- looking -----------------------------------------------------------------------------------


def slots(owner: Any) -> list[Slot]:
    """All slots of a tensor, or of an owner that `owner_kind` knows. Attributes are sorted, so the
    order in which they were set does not matter."""
    for kind, slots_of in _SLOTS_OF:
        if isinstance(owner, kind):
            return slots_of(owner)
    return of_object(owner)


# The functions that `slots` calls return lists: generators take twice as long.


def _of_partial(partial: functools.partial[Any]) -> list[Slot]:
    return [
        Slot(CALL, "func", partial.func),
        *[Slot(CALL, index, value) for index, value in enumerate(partial.args)],
        *[Slot(CALL, f"{key}=", value) for key, value in partial.keywords.items()],
        *_attributes(partial.__dict__),
    ]


def _of_method(method: types.MethodType) -> list[Slot]:
    return [Slot(CALL, "__self__", method.__self__), Slot(CALL, "__func__", method.__func__)]


def _attributes(named: dict[str, Any], internal: Set[str] = frozenset()) -> list[Slot]:
    return [
        Slot(ATTRIBUTE, key, named[key])
        for key in sorted(named.keys() - internal, key=str)
        if key not in DISPLAY or not isinstance(named[key], _FUNCTIONS)
    ]


def _of_module(module: nn.Module) -> list[Slot]:
    named, transient = module.__dict__, module._non_persistent_buffers_set
    return [
        *[Slot(PARAMETER, key, parameter) for key, parameter in module._parameters.items()],
        *[
            Slot(TRANSIENT if key in transient else BUFFER, key, buffer)
            for key, buffer in module._buffers.items()
        ],
        *[Slot(MODULE, key, child) for key, child in module._modules.items()],
        *_attributes(named, INTERNAL),
        *_of_members(module),
    ]


def _of_tensor(tensor: torch.Tensor) -> list[Slot]:
    """What was set on the tensor. What a subclass that flattens makes again is left out."""
    found = of_object(tensor)
    if not found or not _python_dispatch.is_traceable_wrapper_subclass(tensor):
        return found
    kind: Any = type(tensor)
    names, context = tensor.__tensor_flatten__()
    parts = {name: getattr(tensor, name) for name in names}
    again = kind.__tensor_unflatten__(parts, context, tensor.size(), tensor.stride())
    made = {slot.key: slot.value for slot in of_object(again)}
    return [
        slot
        for slot in found
        if slot.key not in parts and not (slot.key in made and _is_like(slot.value, made[slot.key]))
    ]


def _is_like(value: Any, made: Any) -> bool:
    """Whether a subclass that flattens has made the value of an attribute again. An object counts
    as made if it has the same class: the context says what is in it."""
    if value is made:
        return True
    if type(value) is not type(made) or isinstance(value, torch.Tensor):
        return False
    return type(value) not in SIMPLE or bool(value == made)


def _of_function(function: types.FunctionType) -> Iterator[Slot]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Slot(CELL, name, cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    for index, value in enumerate(function.__defaults__ or ()):
        yield Slot(DEFAULT, index, value)
    for key, value in (function.__kwdefaults__ or {}).items():
        yield Slot(DEFAULT, key, value)
    yield from _attributes(attributes_of(function))


def of_object(owner: Any) -> list[Slot]:
    """All slots of an object. Of a tensor that flattens it has the parts too, unlike `slots`."""
    found: list[Slot] = []
    if isinstance(owner, dict):
        found += _of_items(owner)
    elif isinstance(owner, list | tuple | collections.deque):
        found += [Slot(ITEM, index, value) for index, value in enumerate(owner)]
        if isinstance(owner, collections.deque):
            found.append(Slot(CALL, "maxlen", owner.maxlen))
    elif isinstance(owner, set | frozenset):
        found += [Slot(KEY, index, each) for index, each in enumerate(sorted(owner, key=_order))]
    elif arrays.is_array(type(owner)):
        return [Slot(DATA, "", owner)]
    named = getattr(owner, "__dict__", None)
    if isinstance(named, dict):
        found += _attributes(named)
    return found + _of_members(owner)


def _of_items(owner: dict[Any, Any]) -> Iterator[Slot]:
    """A key that every process calls the same is the key of its slot. Others are values."""
    count = 0
    for key, value in owner.items():
        if type(key) is str or is_plain_key(key):
            yield Slot(ITEM, key, value)
        else:
            yield Slot(KEY, count, key)
            yield Slot(VALUE, count, value)
            count += 1


def is_plain_key(key: Any) -> bool:
    return values.encoded(key) is not values.NOT_PLAIN


def _order(element: Any) -> tuple[str, str]:
    """Sorts what a set has, where its elements say how: their order differs between processes."""
    if isinstance(element, type | types.FunctionType):
        return class_name(type(element)), class_name(element)
    plain = values.encoded(element)
    return class_name(type(element)), "" if plain is values.NOT_PLAIN else json.dumps(plain)


def _of_members(owner: Any) -> list[Slot]:
    found: list[Slot] = []
    for name, member in slots_of_class(type(owner)).items():
        with contextlib.suppress(AttributeError):  # not set
            found.append(Slot(ATTRIBUTE, name, member.__get__(owner)))
    return found


_SLOTS_OF: tuple[tuple[type, Callable[[Any], list[Slot]]], ...] = (
    (nn.Module, _of_module),
    (torch.Tensor, _of_tensor),
    (functools.partial, _of_partial),
    (types.MethodType, _of_method),
    (types.FunctionType, lambda function: list(_of_function(function))),
)


def step(name: str, kind: str, key: Any) -> str:
    """The path of what a slot holds. name: the path of its owner."""
    if kind in NAMED:
        return f"{name}.{key}" if name else str(key)
    if kind == ITEM:
        return f"{name}[{key!r}]"
    if kind in (KEY, VALUE):
        return f"{name}<{kind} {key}>"
    return f"{name}<{key}>"


# ---- changing ----------------------------------------------------------------------------------


def put(owner: Any, kind: str, key: Any, value: Any) -> None:
    """Puts a value into a slot of an owner that `is_mutable`. Other kinds of slots with the same
    name are removed."""
    if isinstance(owner, nn.Module):
        _put_in_module(owner, kind, key, value)
    elif kind == ITEM:
        if isinstance(owner, list | collections.deque) and key == len(owner):
            owner.append(value)
        else:
            owner[key] = value
    elif kind == CELL:
        owner.__closure__[owner.__code__.co_freevars.index(key)].cell_contents = value
    elif kind == DEFAULT:
        _put_default(owner, key, value)
    elif kind == CALL:
        _put_argument(owner, key, value)
    else:
        _put_attribute(owner, key, value)


def _put_in_module(module: nn.Module, kind: str, key: str, value: Any) -> None:
    if kind == ATTRIBUTE and key in slots_of_class(type(module)):
        _put_attribute(module, key, value)
        return
    tables: dict[str, dict[str, Any]] = {
        PARAMETER: module._parameters,
        BUFFER: module._buffers,
        TRANSIENT: module._buffers,
        MODULE: module._modules,
        ATTRIBUTE: module.__dict__,
    }
    for table in tables.values():
        if table is not tables[kind]:
            table.pop(key, None)
    tables[kind][key] = value  # at its old place, if it had one: state_dict() keeps this order
    if kind == TRANSIENT:
        module._non_persistent_buffers_set.add(key)
    else:
        module._non_persistent_buffers_set.discard(key)


def _put_default(function: Any, key: str | int, value: Any) -> None:
    if isinstance(key, int):
        defaults = function.__defaults__
        function.__defaults__ = (*defaults[:key], value, *defaults[key + 1 :])
    else:
        function.__kwdefaults__[key] = value


def _put_argument(partial: functools.partial[Any], key: str | int, value: Any) -> None:
    called: Any = partial.func
    arguments, keywords = list(partial.args), dict(partial.keywords)
    if key == "func":
        called = value
    elif isinstance(key, int):
        arguments[key] = value
    else:
        keywords[key.removesuffix("=")] = value
    state = (called, tuple(arguments), keywords, partial.__dict__ or None)
    partial.__setstate__(state)  # type: ignore[attr-defined]


def _put_attribute(owner: Any, key: str, value: Any) -> None:
    """Sets it without `__setattr__`, which frozen dataclasses refuse."""
    members = slots_of_class(type(owner))
    if key in members:
        members[key].__set__(owner, value)
    else:
        owner.__dict__[key] = value


def drop(owner: Any, key: Any, kind: str = ATTRIBUTE) -> None:
    """Removes a slot, if there is one. kind: ITEM for what a dict or list has."""
    if kind == ITEM:
        del owner[key]
        return
    if isinstance(owner, nn.Module):
        for table in (owner._parameters, owner._buffers, owner._modules):
            table.pop(key, None)
        owner._non_persistent_buffers_set.discard(key)
    members = slots_of_class(type(owner))
    if key in members:
        members[key].__delete__(owner)
    else:
        owner.__dict__.pop(key, None)


def put_keyed(owner: Any, gone: Sequence[Any], pairs: Sequence[tuple[Any, Any]]) -> None:
    """Exchanges what a dict has under keys that are no plain values, or elements of a set (then the
    second of each pair means nothing)."""
    is_set = isinstance(owner, set)
    for key in gone:
        owner.discard(key) if is_set else owner.pop(key, None)
    for key, value in pairs:
        if is_set:
            owner.add(key)
        else:
            owner[key] = value


def put_in_order(owner: dict[Any, Any], keys: Sequence[Any]) -> None:
    """Gives the items of a dict this order: programs go through them."""
    for key in keys:
        owner[key] = owner.pop(key)


def is_mutable(owner: Any) -> bool:
    return not isinstance(owner, tuple | frozenset | types.MethodType)


def rebuilt(owner: Any, values: Sequence[Any]) -> Any:
    """A copy of a tuple, named tuple, frozenset or bound method with other values in its slots, in
    their order."""
    if isinstance(owner, types.MethodType):
        return types.MethodType(values[1], values[0])
    base: Any = frozenset if isinstance(owner, frozenset) else tuple
    try:
        return base.__new__(type(owner), values)  # without the class's own code
    except TypeError:  # torch.return_types and others of C
        return type(owner)(values)


def saved(owner: Any) -> Callable[[], None]:
    """Remembers what all slots of an owner hold. Returns a function that restores it."""
    if isinstance(owner, nn.Module):
        return _saved_module(owner)
    content = _saved_content(owner)
    before = [slot for slot in slots(owner) if content is None or slot.kind == ATTRIBUTE]

    def restore() -> None:
        if content is not None:
            content()
        kept = {(slot.kind, slot.key) for slot in before}
        for slot in reversed(slots(owner)):
            if (slot.kind, slot.key) not in kept and (content is None or slot.kind == ATTRIBUTE):
                drop(owner, slot.key, slot.kind)
        for slot in before:
            put(owner, slot.kind, slot.key, slot.value)

    return restore


def _saved_content(owner: Any) -> Callable[[], None] | None:
    """The same for what a container holds. None: it is none."""
    if isinstance(owner, list):
        return functools.partial(owner.__setitem__, slice(None), list(owner))
    if not isinstance(owner, dict | set | collections.deque):
        return None
    copy: Any = list(owner.items()) if isinstance(owner, dict) else list(owner)

    def restore() -> None:
        owner.clear()
        if isinstance(owner, dict):  # a Counter's update() would count
            for key, value in copy:
                owner[key] = value
        else:
            owner.extend(copy) if isinstance(owner, collections.deque) else owner.update(copy)

    return restore


def _saved_module(module: nn.Module) -> Callable[[], None]:
    tables: tuple[Any, ...] = (
        *(module._parameters, module._buffers, module._modules),
        *(module._non_persistent_buffers_set, module.__dict__),
    )
    copies = [table.copy() for table in tables]
    members = _of_members(module)

    def restore() -> None:
        for table, copy in zip(tables, copies, strict=True):
            table.clear()
            table.update(copy)
        for slot in members:
            _put_attribute(module, slot.key, slot.value)

    return restore
