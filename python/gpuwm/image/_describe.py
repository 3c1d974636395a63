"""Describes a module, name by name, so that two can be compared: in one process, or as JSON."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .. import errors
from .._c import lib
from .._shown import texts
from . import values
from .graph import Graph, Leaf
from .postprocess import own_calls
from .slots import step
from .storages import Storages

SCHEMA = 1
# Bytes go through host memory in pieces of this size, one for each thread.
PIECE_BYTES = 32 << 20
# SHA-256 takes 1 to 2 GB/s of one core; more threads than this would wait for the GPU's link.
THREADS = 8


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
    classes of objects, all by name."""

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
        digests = _digests([leaf.tensor for leaf in graph.leaves])
        tensors: dict[str, Row] = {}
        plain: dict[str, Any] = {}
        objects = {node.name: node.said for node in graph.nodes if node.kind != "tensor"}
        for node in graph.nodes:
            for kind, key, held in node.slots:
                name = step(node.name, kind, key)
                if isinstance(held, dict) and "tensor" in held:
                    _add(tensors, graph, storages, digests, name, kind, held["tensor"])
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
    digests: Sequence[str | None],
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
        sha256=digests[position],
        tied=None if name == leaf.name else leaf.name,
        memory=_memory(graph, storages, leaf, position),
    )
    for part, at in (leaf.parts or {}).items():
        _add(tensors, graph, storages, digests, f"{name}.{part}", "part", at)


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


# ---- bytes -------------------------------------------------------------------------------------


def _digests(tensors: Sequence[torch.Tensor]) -> list[str | None]:
    plain = [torch.Tensor.detach(t) if _has_bytes(t) else None for t in tensors]
    workers = min(THREADS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers, "gpuwm digest") as pool:
        return list(pool.map(lambda tensor: None if tensor is None else digest(tensor), plain))


def _has_bytes(tensor: torch.Tensor) -> bool:
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return not hasattr(tensor, "__tensor_flatten__")


def digest(tensor: torch.Tensor) -> str:
    """The SHA-256 of a plain tensor's elements in the order of C, in hexadecimal."""
    found = hashlib.sha256()
    with torch.no_grad():
        for piece in _pieces(tensor.resolve_conj().resolve_neg()):
            host = piece.contiguous().cpu()
            size = host.numel() * host.element_size()
            if size:
                found.update((ctypes.c_char * size).from_address(host.data_ptr()))
    return found.hexdigest()


# Integers as wide as an element: torch has no kernel that copies some dtypes.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Pieces that are the tensor if they are put one after the other, in the order of C."""
    words = tensor.view(_WORDS[tensor.element_size()])
    if words.is_contiguous():
        words = words.view(-1)
    if words.numel() * words.element_size() <= PIECE_BYTES or words.dim() == 0:
        yield words
        return
    row = max(words.numel() // words.size(0) * words.element_size(), 1)
    count = max(PIECE_BYTES // row, 1)
    for begin in range(0, words.size(0), count):
        part = words[begin : begin + count]
        if count == 1 and part.dim() > 1:
            yield from _pieces(part[0])
        else:
            yield part


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
