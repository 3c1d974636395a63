"""Finds what refers to what in a module: every place of an object that holds another one.

An *owner* is an object that is looked into: a module, a tensor (its attributes), a helper object
(instance dict and slots), a dict, list or tuple, a `functools.partial`, a bound method, or a
function (its closure and defaults). A *slot* is one place of an owner, and has a kind and a key.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import types
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _python_dispatch

from .. import _program

# The kinds of slots. The first four are those of modules. Any object can have an ATTRIBUTE.
PARAMETER = "parameter"
BUFFER = "buffer"
TRANSIENT = "transient"  # a buffer that state_dict() leaves out
MODULE = "module"
ATTRIBUTE = "attribute"
ITEM = "item"
CELL = "cell"  # a variable of a closure
DEFAULT = "default"  # a default of a function
CALL = "call"  # what a bound method or a partial calls, and its arguments
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

# Objects of these classes are not looked into: they are means of the process, and not the model's
# state. Each is the name of a class, or of one that it derives from, with its module.
OPAQUE = (
    *("logging.*", "threading.*", "_thread.*", "asyncio.*", "concurrent.*", "multiprocessing.*"),
    *("queue.*", "_queue.*", "socket.*", "_socket.*", "subprocess.*", "ctypes.*", "_ctypes.*"),
    *("_io.*", "weakref.*", "re.*", "enum.*", "pathlib.*", "importlib.*", "_frozen_importlib*"),
    *("contextlib.*", "contextvars.*", "inspect.*", "numpy.*", "triton.*", "gpuwm.*"),
    *("torch.distributed.*", "torch.cuda.*", "torch._C.*", "torch._ops.*", "torch._library.*"),
    *("torch._dynamo.*", "torch._inductor.*", "torch.fx.*", "torch.jit.*", "torch.autograd.*"),
    *("torch.utils.hooks.*", "transformers.configuration_utils.*", "transformers.generation.*"),
)


SIMPLE = frozenset((type(None), bool, int, float, str))


class Slot(NamedTuple):
    kind: str
    key: Any  # str, int, or another plain key of a dict
    value: Any


def class_name(kind: Any) -> str:
    """The name under which every process knows the class, or a function."""
    return f"{_program.known(kind.__module__)}.{kind.__qualname__}"


class Opaque:
    """The classes that are not looked into. globs: of names in the form of class_name, besides
    OPAQUE."""

    def __init__(self, globs: Sequence[str] = ()) -> None:
        self.globs: tuple[str, ...] = tuple(globs)
        self.kinds: dict[type, str | None] = {}  # the results of owner_kind

    def __contains__(self, kind: type) -> bool:
        return self.names([class_name(base) for base in kind.__mro__[:-1]])

    def names(self, names: Sequence[str]) -> bool:
        return any(
            fnmatch.fnmatchcase(name, glob) for name in names for glob in (*OPAQUE, *self.globs)
        )


class Ignored:
    """Attributes that are neither recorded nor compared. globs: of their paths. Parameters, buffers
    and modules are never among them, and neither is what dicts, lists and tuples hold."""

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


def _may_end(glob: str, key: str) -> bool:
    """Whether a path that ends with the key can match. Few do, and there are many paths."""
    end = glob.rpartition(".")[2]
    return any(wild in end for wild in "*?[]") or key.endswith(end)


def owner_kind(value: Any, opaque: Opaque) -> str | None:
    """The kind of an owner, or None if the value is not looked into. Tensors are not such owners:
    their attributes are looked at separately."""
    kind = type(value)
    if kind in SIMPLE:  # as most values are
        return None
    if kind not in opaque.kinds:
        opaque.kinds[kind] = _kind_of_class(kind, opaque)
    found = opaque.kinds[kind]
    if found == "function":
        said = class_name(value)
        return "function" if _has_state(value) and not opaque.names([said]) else None
    return found


def _kind_of_class(kind: type, opaque: Opaque) -> str | None:
    if issubclass(kind, nn.Module):
        return "module"
    for name, base in _BUILTIN:
        if issubclass(kind, base):
            return name if kind is base or kind not in opaque else None
    if kind is types.FunctionType:
        return "function"
    if issubclass(kind, _LEAVES) or kind.__module__ == "builtins" or kind in opaque:
        return None
    return "object" if kind.__dictoffset__ or _slots_of_class(kind) else None


# The kinds of owners that an object on a tensor may be, and consist of.
PARTED = frozenset(("object", "dict", "list", "tuple"))
_BUILTIN: tuple[tuple[str, type], ...] = (
    ("dict", dict),
    ("list", list),
    ("tuple", tuple),
    ("partial", functools.partial),
    ("method", types.MethodType),
)
_LEAVES = (type, types.ModuleType, torch.dtype, torch.device, torch.Tensor)


def _has_state(function: types.FunctionType) -> bool:
    return bool(function.__closure__ or function.__defaults__ or function.__kwdefaults__)


_members: dict[type, dict[str, Any]] = {}


def _slots_of_class(kind: type) -> dict[str, Any]:
    """Descriptors of `__slots__`, by name."""
    known = _members.get(kind)
    if known is not None:
        return known
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        for name, member in vars(base).items():
            # SimpleNamespace has one for its instance dict
            if isinstance(member, types.MemberDescriptorType) and name != "__dict__":
                found.setdefault(name, member)
    _members[kind] = dict(sorted(found.items()))
    return _members[kind]


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


def of_object(owner: Any) -> list[Slot]:
    """All slots of an object. Of a tensor that flattens it has the parts too, unlike `slots`."""
    found: list[Slot] = []
    if isinstance(owner, dict):
        found += [Slot(ITEM, key, value) for key, value in owner.items()]
    elif isinstance(owner, list | tuple):
        found += [Slot(ITEM, index, value) for index, value in enumerate(owner)]
    named = getattr(owner, "__dict__", None)
    if isinstance(named, dict):
        found += _attributes(named)
    for name, member in _slots_of_class(type(owner)).items():
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
    return f"{name}<{key}>"


# ---- changing ----------------------------------------------------------------------------------


def put(owner: Any, kind: str, key: Any, value: Any) -> None:
    """Puts a value into a slot of an owner that `is_mutable`. Other kinds of slots with the same
    name are removed."""
    if isinstance(owner, nn.Module):
        _put_in_module(owner, kind, key, value)
    elif kind == ITEM:
        if isinstance(owner, list) and key == len(owner):
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
    members = _slots_of_class(type(owner))
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
    members = _slots_of_class(type(owner))
    if key in members:
        members[key].__delete__(owner)
    else:
        owner.__dict__.pop(key, None)


def is_mutable(owner: Any) -> bool:
    return not isinstance(owner, tuple | types.MethodType)


def rebuilt(owner: Any, values: Sequence[Any]) -> Any:
    """A copy of a tuple, named tuple or bound method with other values in its slots, in their
    order."""
    if isinstance(owner, types.MethodType):
        return types.MethodType(values[1], values[0])
    try:
        return tuple.__new__(type(owner), values)  # without the class's own code
    except TypeError:  # torch.return_types and others of C
        return type(owner)(values)


def saved(owner: Any) -> Callable[[], None]:
    """Remembers what all slots of an owner hold. Returns a function that restores it."""
    if isinstance(owner, nn.Module):
        return _saved_module(owner)
    before = slots(owner)
    if isinstance(owner, list):
        items = list(owner)
        return functools.partial(owner.__setitem__, slice(None), items)

    def restore() -> None:
        kept = {(slot.kind, slot.key) for slot in before}
        for slot in reversed(slots(owner)):
            if (slot.kind, slot.key) not in kept:
                drop(owner, slot.key, slot.kind)
        for slot in before:
            put(owner, slot.kind, slot.key, slot.value)

    return restore


def _saved_module(module: nn.Module) -> Callable[[], None]:
    tables: tuple[Any, ...] = (
        *(module._parameters, module._buffers, module._modules),
        *(module._non_persistent_buffers_set, module.__dict__),
    )
    copies = [table.copy() for table in tables]

    def restore() -> None:
        for table, copy in zip(tables, copies, strict=True):
            table.clear()
            table.update(copy)

    return restore
