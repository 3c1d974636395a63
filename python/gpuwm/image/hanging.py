"""Objects that hang on tensors, as `weight.quant_state` does. An image carries those that are made
of tensors and plain values: no code that makes a module would make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .graph import Graph, is_carried
from .kinds import PARTED, described, owner_kind
from .nodes import Node
from .objects import MISSING, Objects
from .slots import ATTRIBUTE, slots, step


def positions(nodes: Sequence[Node], modules: int) -> frozenset[int]:
    """The nodes of tensors' attributes, and of all that hangs on tensors but modules of the tree,
    of which there are so many."""
    found: set[int] = set()
    left = [position for position, node in enumerate(nodes) if node.kind == "tensor"]
    while left:
        position = left.pop()
        if position in found or position < modules:
            continue
        found.add(position)
        for _, _, held in nodes[position].slots:
            if isinstance(held, dict) and "node" in held:
                left.append(held["node"])
    return frozenset(found)


def refused(graph: Graph, device: torch.device) -> Iterator[tuple[str, str]]:
    """The path of each object on a tensor that the image can't carry, and a line about it. The
    module that the image is installed on would compute with another one, or with none.

    device: of the version."""
    walk = _Walk(graph, device)
    for node in graph.nodes:
        if node.kind != "tensor":
            continue
        on = "a parameter" if isinstance(node.owner, nn.Parameter) else "a tensor"
        for slot in slots(node.owner):
            if graph.ignored.fits(node.name, slot.key):
                continue
            path = step(node.name, slot.kind, slot.key)
            for name, value in walk.uncarried(path, slot.value, set()):
                yield (
                    path,
                    f"{name}: {described(value)}, which hangs on {on}; an image carries only "
                    "tensors, plain values and objects made of them there",
                )


class _Walk:
    def __init__(self, graph: Graph, device: torch.device) -> None:
        self._graph = graph
        self._device = device
        self._objects = Objects(device)

    def uncarried(self, name: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
        """What the value is made of that can't be carried, with its path."""
        if is_carried(value) or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, torch.device) and value.type == self._device.type:
            return  # it is the version's in every process
        kind = owner_kind(value, self._graph.opaque)
        if kind == "module" and self._graph.is_in_tree(value):
            return
        if kind not in PARTED or self._objects.owner(self._graph.node_of(value)) is MISSING:
            yield name, value
            return
        for slot in slots(value):
            is_attribute = slot.kind == ATTRIBUTE
            if not (is_attribute and self._graph.ignored.fits(name, slot.key)):
                yield from self.uncarried(step(name, slot.kind, slot.key), slot.value, seen)
