"""Describes a module, name by name, so that two can be compared: in one process, or as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .. import errors
from .._c import lib
from .._shown import texts
from . import digests, of_classes, values
from .graph import Graph, Leaf
from .postprocess import own_calls
from .slots import step
from .storages import Storages

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Row:
    """A tensor of a module, under one name.

    - kind: "parameter", "buffer", "transient" (a buffer that state_dict() leaves out), "attribute",
      "item", "cell", "default", "call" (see `slots`) or "part" (of a subclass that flattens).
    - said: its class.
    - shape, strides: in elements.
    - device: "cpu" or "cuda".
    - sha256: of its elements in the order of C (the last dimension fastest), whatever its strides.
      None: it has no memory, or no bytes of its own.
    - tied: the name of the row with the same object, if that row comes first.
    - memory: if tensors overlap, the name of the first of them, and the bytes from its begin.
    """

    kind: str
    said: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    sha256: str | None
    tied: str | None
    memory: str | None


@dataclasses.dataclass(frozen=True)
class Description:
    """A description of a module: its tensors, plain values (in JSON's form, see `values`) and
    classes of objects, all by name. A tensor on the class
    of a module is a value: its dtype, shape and SHA-256."""

    tensors: dict[str, Row]
    values: dict[str, Any]
    objects: dict[str, str]

    def __repr__(self) -> str:
        return texts.of_fields(self)

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Description:
        """Reads what `to_json` wrote. Raises Invalid for any other text."""
        try:
            content = json.loads(text)
            if content["schema"] != SCHEMA:
                raise errors.Invalid(
                    f"a description of schema {content['schema']!r}, and this gpuwm reads schema "
                    f"{SCHEMA}",
                    "describe both modules with the same gpuwm",
                )
            rows = {name: _row(**row) for name, row in content["tensors"].items()}
            return cls(rows, dict(content["values"]), dict(content["objects"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, errors.Invalid):
                raise
            raise errors.Invalid(
                f"the text is no description: {type(error).__name__} {error}",
                "give what Description.to_json made",
            ) from None


def _row(shape: Sequence[int], strides: Sequence[int], **others: Any) -> Row:
    return Row(shape=tuple(shape), strides=tuple(strides), **others)


def describe(
    model: nn.Module, *, opaque: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Description:
    """Describes all of a module that an image would have. See `publish` for both keywords. It reads
    every byte, on a GPU through host memory piece by piece, and does not change the module. Nobody
    may write into the module meanwhile."""
    with own_calls():
        graph = Graph(model, lib.names(opaque, "opaque"), lib.names(ignored, "ignored"))
        storages = Storages(graph.leaves)
        _finish_computing([leaf.tensor for leaf in graph.leaves])
        hashes = digests.of_all([leaf.tensor for leaf in graph.leaves])
        tensors: dict[str, Row] = {}
        plain: dict[str, Any] = dict(of_classes.described(graph.tree, graph.ignored))
        objects = {node.name: node.said for node in graph.nodes if node.kind != "tensor"}
        for node in graph.nodes:
            for kind, key, held in node.slots:
                name = step(node.name, kind, key)
                if isinstance(held, dict) and "tensor" in held:
                    _add(tensors, graph, storages, hashes, name, kind, held["tensor"])
                elif isinstance(held, dict) and "other" in held:
                    objects[name] = held["other"]
                elif values.is_plain_json(held):
                    plain[name] = held
        for leaf in graph.leaves:
            if leaf.parts is not None and leaf.context is values.NOT_PLAIN:
                objects[f"{leaf.name}<context>"] = "no plain data"
            elif leaf.parts is not None:
                plain[f"{leaf.name}<context>"] = leaf.context
        return Description(tensors, plain, objects)


def _add(
    tensors: dict[str, Row],
    graph: Graph,
    storages: Storages,
    hashes: Sequence[str | None],
    name: str,
    kind: str,
    position: int,
) -> None:
    leaf = graph.leaves[position]
    tensors[name] = Row(
        kind=kind,
        said=leaf.said,
        dtype=str(leaf.tensor.dtype).removeprefix("torch."),
        shape=tuple(leaf.tensor.size()),
        strides=tuple(leaf.tensor.stride()),
        device=leaf.tensor.device.type,
        sha256=hashes[position],
        tied=None if name == leaf.name else leaf.name,
        memory=_memory(graph, storages, leaf, position),
    )
    for part, at in (leaf.parts or {}).items():
        _add(tensors, graph, storages, hashes, f"{name}.{part}", "part", at)


def _memory(graph: Graph, storages: Storages, leaf: Leaf, position: int) -> str | None:
    view = storages.views.get(position)
    if view is None or view.stored is None:
        return None
    stored = storages.stored[view.stored]
    return f"{stored.name}+{view.offset}" if len(stored.leaves) > 1 else None


def _finish_computing(tensors: Sequence[torch.Tensor]) -> None:
    """Waits for all streams of each device that has some of the tensors; it need not be the current
    device."""
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        torch.cuda.synchronize(device)


# ---- comparing ---------------------------------------------------------------------------------

_FIELDS = {
    "kind": "kind",
    "said": "class",
    "dtype": "dtype",
    "shape": "shape",
    "strides": "strides",
    "device": "device",
    "tied": "tied to",
    "memory": "memory",
    "sha256": "SHA-256",
}


def differences(one: nn.Module | Description, other: nn.Module | Description) -> list[str]:
    """Compares two modules or descriptions, name by name. Returns a line for each difference, with
    both values. An empty list says that they are equal in all that an image has."""
    first, second = (
        each if isinstance(each, Description) else describe(each) for each in (one, other)
    )
    lines: list[str] = []
    for name, row, found in _both(first.tensors, second.tensors, lines, "tensor"):
        for field, word in _FIELDS.items():
            a, b = getattr(row, field), getattr(found, field)
            if a != b:
                lines.append(f"{name}: {word} {_shown(a)} in the first, {_shown(b)} in the second")
    for name, a, b in _both(first.values, second.values, lines, "value"):
        if values.types_of(a) != values.types_of(b) or a != b:
            lines.append(f"{name}: value {a!r} in the first, {b!r} in the second")
    for name, a, b in _both(first.objects, second.objects, lines, "object"):
        if a != b:
            lines.append(f"{name}: {a} in the first, {b} in the second")
    return lines


def _both(
    first: dict[str, Any], second: dict[str, Any], lines: list[str], what: str
) -> Iterator[tuple[str, Any, Any]]:
    """Yields what both have, and adds a line for each of the others."""
    for name, value in first.items():
        if name in second:
            yield name, value, second[name]
        else:
            lines.append(f"{name}: {what} in the first only")
    lines += [f"{name}: {what} in the second only" for name in second if name not in first]


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
