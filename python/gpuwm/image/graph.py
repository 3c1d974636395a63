"""A module and everything that it refers to, as plain data. A record stores it, and two modules are
compared by it."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _python_dispatch

from .._torch import guards, sharded
from .._torch.places import modules_of
from . import arrays, contexts, values
from .kinds import Opaque, class_name, is_said, owner_kind, said_of
from .nodes import Held, Node
from .slots import ATTRIBUTE, BUFFER, DATA, KEY, PARAMETER, TRANSIENT, Ignored, Slot, slots, step


@dataclasses.dataclass(slots=True)
class Leaf:
    """A tensor object.

    - names: its paths as parameter or buffer, or else the first path to it.
    - is_written: the module writes into it: it is registered as a buffer somewhere, or a glob of
      `publish`'s written= matches one of its paths.
    - attributes: the node of the attributes that were set on it.
    - parts: for a subclass that flattens, the tensors that it is made of, by attribute.
    - context: what such a subclass says of itself besides (see `contexts`), or NOT_PLAIN.
    """

    names: list[str]
    tensor: torch.Tensor
    is_written: bool = False
    attributes: int | None = None
    parts: dict[str, int] | None = None
    context: values.Json = None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def said(self) -> str:
        return class_name(plain_class(self.tensor))


class Lost(NamedTuple):
    """What has content that no image can have. path: its place, as `ignored` names it. name: the
    path of the object in it that is the reason."""

    path: str
    name: str
    value: Any


def plain_class(tensor: torch.Tensor) -> type[torch.Tensor]:
    """The tensor's class, without the guard that binding gave it."""
    return tensor.gpuwm_plain if isinstance(tensor, guards.Shared) else type(tensor)


class Graph:
    """nodes: the root first, then the other modules in the order of named_modules(), then helper
    objects, the nearest first. modules: how many of them are modules of the tree. lost: what no
    image can have. named: by path, each object of which a record has only a name; and functions."""

    def __init__(
        self, model: nn.Module, opaque: Sequence[str] = (), ignored: Sequence[str] = ()
    ) -> None:
        self.opaque: Opaque = Opaque(opaque)
        self.ignored: Ignored = Ignored(ignored)
        self.nodes: list[Node] = []
        self.leaves: list[Leaf] = []
        self.lost: list[Lost] = []
        self.named: dict[str, Any] = {}
        self._named_ids: set[int] = set()
        self._node_of: dict[int, int] = {}
        self._leaf_of: dict[int, int] = {}
        named = [(prefix.removesuffix("."), module) for prefix, module in modules_of(model)]
        for name, module in named:
            if id(module) not in self._node_of:
                self._add_node(name, module, "module")
        self.modules: int = len(self.nodes)
        for name, module in named:
            self._add_registered(name, module)
        position = 0
        while position < len(self.nodes):  # it grows in the loop
            self._look_into(self.nodes[position])
            position += 1
        self._spread_written()

    @property
    def tree(self) -> dict[str, nn.Module]:
        """The modules of the tree, by their paths."""
        return {node.name: node.owner for node in self.nodes[: self.modules]}

    def node_of(self, owner: Any) -> Node:
        return self.nodes[self._node_of[id(owner)]]

    def is_in_tree(self, module: nn.Module) -> bool:
        return self._node_of.get(id(module), self.modules) < self.modules

    def mark_read(self, names: Collection[str]) -> None:
        """Marks buffers as those that nobody writes into. names: of buffers."""
        for leaf in self.leaves:
            leaf.is_written &= leaf.names[0] not in names

    def mark_written(self, globs: Sequence[str]) -> None:
        """Marks the tensors of which a glob matches any path, not only the first one: an engine's
        modules pass such tensors on to each other."""
        fits = re.compile("|".join(fnmatch.translate(glob) for glob in globs)).match
        for node in self.nodes if globs else ():
            for kind, key, held in node.slots:
                if isinstance(held, dict) and "tensor" in held and fits(step(node.name, kind, key)):
                    self.leaves[held["tensor"]].is_written = True
        self._spread_written()

    def _spread_written(self) -> None:
        """Marks the parts of a subclass that flattens: writes into it go into its parts."""
        for leaf in self.leaves:
            for part in (leaf.parts or {}).values():
                self.leaves[part].is_written |= leaf.is_written

    def _add_node(self, name: str, owner: Any, kind: str) -> int:
        said = class_name(owner if kind == "function" else type(owner))
        self._node_of[id(owner)] = len(self.nodes)
        self.nodes.append(Node(name, kind, said, [], owner))
        return len(self.nodes) - 1

    def _add_registered(self, name: str, module: nn.Module) -> None:
        for slot in slots(module):
            if slot.kind in (PARAMETER, BUFFER, TRANSIENT) and slot.value is not None:
                leaf = self.leaves[self._leaf(step(name, slot.kind, slot.key), slot.value)]
                leaf.is_written |= slot.kind != PARAMETER
                if step(name, slot.kind, slot.key) not in leaf.names:
                    leaf.names.append(step(name, slot.kind, slot.key))

    def _look_into(self, node: Node) -> None:
        for slot in slots(node.owner):
            if not (slot.kind == ATTRIBUTE and self.ignored.fits(node.name, slot.key)):
                node.slots.append((slot.kind, slot.key, self._held(node, slot)))

    def _held(self, node: Node, slot: Slot) -> Held:
        value = slot.value
        if slot.kind == DATA:
            return arrays.encoded(value)
        plain = values.encoded(value)
        if plain is not values.NOT_PLAIN:
            return plain
        path = step(node.name, slot.kind, slot.key)
        if slot.kind == KEY and not self._is_key(value):
            self._lose(path, path, value)
            return {"other": said_of(value)}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._leaf(path, value)}
        kind = owner_kind(value, self.opaque)
        if kind is None:
            if not is_said(value, self.opaque):
                self._lose(path, path, value)
            self._name(path, value)
            return {"other": said_of(value)}
        if kind == "function":
            self._name(path, value)
        found = self._node_of.get(id(value))
        return {"node": self._add_node(path, value, kind) if found is None else found}

    def _name(self, path: str, value: Any) -> None:
        if id(value) not in self._named_ids:
            self._named_ids.add(id(value))
            self.named[path] = value

    def _lose(self, path: str, name: str, value: Any) -> None:
        if not self.ignored.fits_path(path):
            self.lost.append(Lost(path, name, value))

    def _is_key(self, value: Any) -> bool:
        """Whether `install` can find a key or an element again: by its name, or as an object of
        its own. The hash of another object depends on what is in it, which comes later."""
        if isinstance(value, torch.Tensor) or values.encoded(value) is not values.NOT_PLAIN:
            return True
        kind = owner_kind(value, self.opaque)
        if kind in ("tuple", "frozenset"):
            return all(self._is_key(part) for part in value)
        if kind is None:
            return is_said(value, self.opaque)
        hashes: Any = type(value).__hash__
        return hashes is object.__hash__ or kind in ("function", "module", "method")

    def _leaf(self, name: str, tensor: torch.Tensor) -> int:
        found = self._leaf_of.get(id(tensor))
        if found is not None:
            return found
        position = self._leaf_of[id(tensor)] = len(self.leaves)
        leaf = Leaf([name], tensor)
        self.leaves.append(leaf)
        if sharded.said(tensor):  # no image has it: see storages.unstorable
            return position
        if _python_dispatch.is_traceable_wrapper_subclass(tensor):
            parts, context = tensor.__tensor_flatten__()
            leaf.parts = {
                part: self._leaf(f"{name}.{part}", getattr(tensor, part)) for part in parts
            }
            leaf.context = contexts.encoded(context)
            if leaf.context is values.NOT_PLAIN:
                path = f"{name}<context>"
                self._lose(path, *contexts.uncarried(path, context))
        if any(not self.ignored.fits(name, slot.key) for slot in slots(tensor)):
            leaf.attributes = self._add_node(name, tensor, "tensor")
        return position


def is_carried(value: Any) -> bool:
    """Whether an image has the value if it is an attribute of a tensor."""
    return isinstance(value, torch.Tensor) or values.encoded(value) is not values.NOT_PLAIN
