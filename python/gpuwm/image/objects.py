"""Objects that a record names, made anew: `module` needs them, where `install` takes them from a
module that its caller made."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from . import values
from .kinds import said_of
from .nodes import Held, Node
from .slots import ATTRIBUTE, CALL, DEFAULT, ITEM, slots, step

MISSING: Any = object()


def _nothing() -> None:
    """Stands for what a bound method or a partial will call."""


class Objects:
    """Makes objects without their constructors, empty: whoever asked for one fills it. It imports
    nothing: a class or function that this process has not imported is not found.

    device: of the version's tensors. configs: of the models of transformers in the module, which
    modules around them hold too.
    """

    def __init__(self, device: torch.device, configs: Sequence[Any] = ()) -> None:
        self._device, self._configs = device, configs

    def owner(self, node: Node) -> Any:
        """A new owner (see `slots`) that is no module, or MISSING."""
        return _MAKERS[node.kind](node) if node.kind in _MAKERS else MISSING

    def blank(self, kind: str | None, said: str, items: int) -> Any:
        """A new owner of that kind and class, for so many items, or MISSING."""
        return self.owner(Node("", kind or "", said, [(ITEM, at, None) for at in range(items)]))

    def other(self, said: str) -> Any:
        """The value for which `graph.said_of` gave this text: a class, function or module by its
        name, a device, or a configuration. MISSING: it can't be made."""
        kind, _, name = said.partition(" ")
        if kind == "module":
            return sys.modules.get(name, MISSING)
        if kind == "class":
            return values.imported(name) or MISSING
        if kind == "function":
            return _function(name)
        if said == "torch.device":
            return self._device
        same = [config for config in self._configs if said_of(config) == said]
        return same[0] if len(same) == 1 else MISSING


def problems(nodes: Sequence[Node], modules: int, configs: Sequence[Any] = ()) -> list[str]:
    """A line for each object that `module` could not make in a process that has imported what this
    one has. modules: how many of the nodes are modules of the tree. configs: see `Objects`."""
    objects = Objects(torch.device("cpu"), configs)
    found = [
        f"module: {node.name or 'the module'} is a {node.said}, {_ANOTHER}"
        for node in nodes[:modules]
        if module_class(node.said) is None
    ]
    found += [
        f"hook: {node.name or 'the module'} has a forward hook, which no record describes"
        for node in nodes[:modules]
        if node.owner._forward_hooks or node.owner._forward_pre_hooks
    ]
    for position, node in enumerate(nodes):
        if position >= modules and objects.owner(node) is MISSING and node.kind != "tensor":
            found.append(f"object: {node.name} is a {node.said}, {_ANOTHER}")
        for kind, key, held in node.slots:
            if _is_lost(objects, held):
                found.append(
                    f"object: {step(node.name, kind, key)} is a {held['other']}, {_ANOTHER}"
                )
    return found


_ANOTHER = "which another process could not make"


def _is_lost(objects: Objects, held: Held) -> bool:
    return isinstance(held, dict) and "other" in held and objects.other(held["other"]) is MISSING


def module_class(said: str) -> type[nn.Module] | None:
    found = values.imported(said)
    return found if found is not None and issubclass(found, nn.Module) else None


def blank(kind: type[nn.Module]) -> nn.Module:
    """A module with nothing in it."""
    module: nn.Module = object.__new__(kind)
    module.__dict__.update(nn.Module().__dict__)  # Module.__init__ may call another base's
    return module


# ---- by kind -----------------------------------------------------------------------------------


def _module(node: Node) -> Any:
    """A module that is in no tree: a list or dict has it."""
    kind = module_class(node.said)
    return MISSING if kind is None else blank(kind)


def _object(node: Node) -> Any:
    """Classes with `__new__` would need its arguments, and `__del__` of an object whose constructor
    never ran might do anything: these are not made."""
    kind = values.imported(node.said)
    if kind is None or _own(kind, "__del__"):
        return MISSING
    for base in (object, types.SimpleNamespace):
        if _own(kind, "__new__") == _own(base, "__new__"):
            return _blank(base, kind)
    return MISSING


def _blank(base: Any, kind: type, *content: Any) -> Any:
    """MISSING: it is abstract, or Python makes no such objects."""
    try:
        return base.__new__(kind, *content)
    except TypeError:
        return MISSING


def _own(kind: type, name: str) -> Any:
    """A method of a class or of its bases. None: there is none."""
    return getattr(kind, name, None)


def _container(*bases: type) -> Callable[[Node], Any]:
    """Classes with constructors of their own have more than their items."""

    def make(node: Node) -> Any:
        kind = values.imported(node.said)
        if kind is None or _own(kind, "__del__"):
            return MISSING
        for base in bases:
            if issubclass(kind, base) and all(
                _own(kind, name) is _own(base, name) for name in ("__new__", "__init__")
            ):
                return _blank(base, kind)
        return MISSING

    return make


def _tuple(node: Node) -> Any:
    kind = values.imported(node.said)
    if kind is None or not issubclass(kind, tuple) or _own(kind, "__del__"):
        return MISSING
    return _blank(tuple, kind, [MISSING] * sum(slot[0] == ITEM for slot in node.slots))


def _deque(node: Node) -> Any:
    kind = values.imported(node.said)
    if kind is None or not issubclass(kind, collections.deque) or _own(kind, "__del__"):
        return MISSING
    made = _blank(collections.deque, kind)
    if made is not MISSING:
        length = next((held for slot, _, held in node.slots if slot == CALL), None)
        collections.deque.__init__(made, (), length)
    return made


def _array(node: Node) -> Any:
    try:
        return values.decoded(node.slots[0][2])
    except LookupError:  # a dtype of a package that this process has not imported
        return MISSING


def _partial(node: Node) -> Any:
    count = sum(type(key) is int for _, key, _ in node.slots)
    return functools.partial(_nothing, *[MISSING] * count)


def _method(_: Node) -> Any:
    return types.MethodType(_nothing, MISSING)


def _function_of(node: Node) -> Any:
    """A function that has defaults: only if they are what was published, since a function is the
    whole process's."""
    found = _function(node.said)
    if found is MISSING:
        return MISSING
    here = [[kind, key, values.encoded(value)] for kind, key, value in slots(found)]
    there = [list(slot) for slot in node.slots]
    same = here == there and values.types_of(here) == values.types_of(there)
    return found if same and all(kind in (DEFAULT, ATTRIBUTE) for kind, _, _ in here) else MISSING


def _function(name: str) -> Any:
    """torch's own functions say that a class has them, which can't be found."""
    places = *values.named(name), vars(torch).get(name.rpartition(".")[2])
    return next((each for each in places if said_of(each) == f"function {name}"), MISSING)


_MAKERS: dict[str, Callable[[Node], Any]] = {
    "module": _module,
    "object": _object,
    "dict": _container(dict, collections.OrderedDict, collections.defaultdict),
    "set": _container(set),
    "frozenset": _container(frozenset),
    "deque": _deque,
    "array": _array,
    "list": _container(list),
    "tuple": _tuple,
    "partial": _partial,
    "method": _method,
    "function": _function_of,
}
