"""Which objects are looked into, which say all about themselves by a name, and which have more in
them than anybody can see."""

from __future__ import annotations

import collections
import enum
import fnmatch
import functools
import types
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from .. import _program
from . import arrays

# Objects of these classes are not looked into: they are means of the process, and not the model's
# state. Each is the name of a class, or of one that it derives from, with its module.
OPAQUE = (
    *("logging.*", "threading.*", "_thread.*", "asyncio.*", "concurrent.*", "multiprocessing.*"),
    *("queue.*", "_queue.*", "socket.*", "_socket.*", "subprocess.*", "ctypes.*", "_ctypes.*"),
    *("_io.*", "weakref.*", "_weakrefset.*", "re.*", "enum.*", "pathlib.*", "importlib.*"),
    *("_frozen_importlib*", "contextlib.*", "contextvars.*", "inspect.*", "numpy.*", "triton.*"),
    *("gpuwm.*", "torch.distributed.*", "torch.cuda.*", "torch._C.*", "torch._ops.*"),
    *("torch._library.*", "torch._dynamo.*", "torch._inductor.*", "torch.fx.*", "torch.jit.*"),
    *("torch.autograd.*", "torch.utils.hooks.*", "transformers.configuration_utils.*"),
    "transformers.generation.*",
)
# Of these, objects of the following classes have weights in them all the same, or other values.
_WITH_CONTENT = (
    *("numpy.ndarray", "numpy.generic", "numpy.dtype"),
    *("torch._C.ScriptObject", "torch._C.StorageBase", "torch.storage.TypedStorage"),
)

SIMPLE = frozenset((type(None), bool, int, float, str))


def class_name(kind: Any) -> str:
    """The name under which every process knows the class, or a function."""
    name = kind.__name__ if is_of_a_module(kind) else kind.__qualname__
    return f"{_program.known(kind.__module__)}.{name}"


def is_of_a_module(function: Any) -> bool:
    """Whether its module has a function of C under its name. `__self__` of
    pybind11's (torch._C._is_tracing) is not the module but a record, which `__qualname__` tells."""
    return isinstance(function, types.BuiltinFunctionType) and any(
        vars(module).get(function.__name__) is function
        for module in _program.found(function.__module__ or "")
    )


class Opaque:
    """The classes that are not looked into. globs: of names in the form of class_name, besides
    OPAQUE."""

    def __init__(self, globs: Sequence[str] = ()) -> None:
        self.globs: tuple[str, ...] = tuple(globs)
        self.kinds: dict[type, str | None] = {}  # the results of owner_kind

    def __contains__(self, kind: type) -> bool:
        return self.names([class_name(base) for base in kind.__mro__[:-1]])

    def names(self, names: Sequence[str]) -> bool:
        return _fits(names, (*OPAQUE, *self.globs))

    def was_named(self, kind: type) -> bool:
        """Whether the caller has named the class, or one that it derives from."""
        return _fits([class_name(base) for base in kind.__mro__[:-1]], self.globs)


def _fits(names: Sequence[str], globs: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


# ---- owners ------------------------------------------------------------------------------------


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
    if found == "array":
        return None if arrays.problem(value) else "array"
    return found


def _kind_of_class(kind: type, opaque: Opaque) -> str | None:
    if issubclass(kind, nn.Module):
        return "module"
    for name, base in _BUILTIN:
        if issubclass(kind, base):
            return name if kind is base or kind not in opaque else None
    if kind is types.FunctionType:
        return "function"
    if arrays.is_array(kind):
        return None if opaque.was_named(kind) else "array"
    if issubclass(kind, _LEAVES) or kind.__module__ == "builtins" or kind in opaque:
        return None
    if not (kind.__dictoffset__ or slots_of_class(kind)):
        return None
    return "object" if kind in _KNOWN or not has_native_state(kind) else None


# The kinds of owners that an object on a tensor may be, and consist of.
PARTED = frozenset(("object", "dict", "list", "tuple", "deque", "set", "frozenset", "array"))
_BUILTIN: tuple[tuple[str, type], ...] = (
    ("dict", dict),
    ("list", list),
    ("tuple", tuple),
    ("set", set),
    ("frozenset", frozenset),
    ("deque", collections.deque),
    ("partial", functools.partial),
    ("method", types.MethodType),
)
_LEAVES = (type, types.ModuleType, torch.dtype, torch.device, torch.Tensor)
# What they have besides their attributes are results, which they compute again.
_KNOWN = (functools._lru_cache_wrapper,)


def _has_state(function: types.FunctionType) -> bool:
    return bool(
        function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
        or attributes_of(function)
    )


def attributes_of(function: types.FunctionType) -> dict[str, Any]:
    """What was set on a function, but for what decorators and torch note there."""
    named = vars(function)
    marks = ("__", "_torchdynamo")
    return {key: named[key] for key in named if not key.startswith(marks)} if named else {}


_members: dict[type, dict[str, Any]] = {}


def slots_of_class(kind: type) -> dict[str, Any]:
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


# ---- what has no slots -------------------------------------------------------------------------

_POINTER_BYTES = object.__basicsize__ // 2  # an object has a count and its class


def has_native_state(kind: type) -> bool:
    """Whether objects of the class have more in them than slots and an instance dict: the values of
    a subclass of int, or what code in C keeps there."""
    base = kind
    while base is not object:
        above: Any = base.__base__
        named = vars(base)
        seen = sum(isinstance(each, types.MemberDescriptorType) for each in named.values())
        # an instance dict and a list of weak references, where they are no members
        seen += sum(
            isinstance(named.get(name), types.GetSetDescriptorType)
            for name in ("__dict__", "__weakref__")
        )
        if base.__itemsize__ or base.__basicsize__ - above.__basicsize__ > seen * _POINTER_BYTES:
            return True
        base = above
    return False


def is_said(value: Any, opaque: Opaque) -> bool:
    """Whether the name of its class, or its own, says all about a value that is no plain value, no
    tensor and no owner; or else it is a means of the process."""
    kind = type(value)
    if opaque.was_named(kind):
        return True
    if isinstance(value, _NAMED):
        return True
    if isinstance(value, types.BuiltinFunctionType):
        has_state = not isinstance(value.__self__, type | types.ModuleType | None)
        return is_of_a_module(value) or not has_state
    if _fits([class_name(base) for base in kind.__mro__[:-1]], _WITH_CONTENT):
        return False
    if isinstance(value, _WEAK):
        return not any(isinstance(each, torch.Tensor) for each in _referents(value))
    if kind in opaque:
        return True
    return not (kind.__dictoffset__ or slots_of_class(kind) or has_native_state(kind))


_NAMED = (
    *(type, types.ModuleType, types.FunctionType, types.MethodDescriptorType, torch.device),
    *(types.WrapperDescriptorType, types.GenericAlias, types.UnionType, enum.Enum),
)
_WEAK = (*(weakref.ref, weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet),)


def _referents(weak: Any) -> Iterable[Any]:
    """What a weak reference or a container of such refers to, and what it holds."""
    if isinstance(weak, weakref.ref):
        return [weak()]
    return [*weak, *(weak.values() if isinstance(weak, collections.abc.Mapping) else ())]


# ---- words -------------------------------------------------------------------------------------


def described(value: Any) -> str:
    """What an error says of an object."""
    kind = type(value)
    is_named = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
    said = class_name(value if is_named else kind)
    plainly = f"a {kind.__name__}"
    return plainly if said == f"builtins.{kind.__name__}" else f"{plainly} ({said})"


def said_of(value: Any) -> str:
    """What is compared of an object that is not looked into."""
    if isinstance(value, type):
        return f"class {class_name(value)}"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        return f"function {class_name(value)}"
    if isinstance(value, types.MethodDescriptorType | types.WrapperDescriptorType):
        return f"function {class_name(value.__objclass__)}.{value.__name__}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, types.GenericAlias | types.UnionType):
        return repr(value)
    if isinstance(value, enum.Enum):
        return str(value)
    return class_name(type(value))
