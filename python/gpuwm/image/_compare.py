"""Compares two images by their records: whether one can take the place of the other."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Iterator
from typing import Any

from .._mapping import Mapping as Attached
from . import contents, of_classes
from .nodes import Held, Node
from .record import FILE, Record, Tensor, read
from .slots import step


def difference(one: Attached, other: Attached, ignored: Container[str] = ()) -> str | None:
    """Returns the first thing that differs between `one` and `other`, or None: a module, an object,
    the description or place of a tensor, or a plain value. Bytes are not compared.

    `Mapping.switch` and `exchange` move only bytes. So a model on which `one` is installed becomes
    by them what installing `other` would have made of it only if nothing differs. ignored: names of
    attributes whose plain values may differ. Raises the errors of `gpuwm.image.install` for a
    version that is not an image, or whose record is damaged.
    """
    if one.files.get(FILE) == other.files.get(FILE) is not None:
        return None
    return record_difference(read(one), read(other), ignored)


def record_difference(one: Record, other: Record, ignored: Container[str] = ()) -> str | None:
    """Does what `difference` does, with two records."""
    return next((line for _, line in _differences(one, other, ignored)), None)


def differences(one: Record, other: Record) -> Iterator[tuple[str, str]]:
    """Everything that differs, and what is in objects that images do not carry: the name, and a
    line with both."""
    yield from _differences(one, other, ())
    for name, content in one.contents.items():
        for line in contents.differences(name, content, other.contents.get(name), WORDS):
            yield name, line


# ---- what differs, by name ---------------------------------------------------------------------

WORDS = "here", "there"


def _differences(one: Record, other: Record, ignored: Container[str]) -> Iterator[tuple[str, str]]:
    for mine, theirs in zip(one.nodes, other.nodes, strict=False):
        yield from _of_nodes(mine, theirs, ignored)
    for tensor, another in zip(one.tensors, other.tensors, strict=False):
        for line in _of_tensors(tensor, another):
            yield tensor.name, line
    for line in of_classes.problems(one.class_tensors, other.class_tensors, WORDS):
        yield line.partition(": ")[0], line
    for what, count, others in (
        ("modules", one.modules, other.modules),
        ("modules and objects", len(one.nodes), len(other.nodes)),
        ("tensors", len(one.tensors), len(other.tensors)),
    ):
        if count != others:
            yield what, f"{count} {what} here, {others} there"


def _of_nodes(one: Node, other: Node, ignored: Container[str]) -> Iterator[tuple[str, str]]:
    said = one.name or "the module"
    if one.name != other.name:
        yield one.name, f"{said} here, {other.name or 'the module'} there"
        return
    if (one.kind, one.said) != (other.kind, other.said):
        yield one.name, f"{said}: {one.said} here, {other.said} there"
        return
    here, there = _values(one, ignored), _values(other, ignored)
    for name in (*here, *(name for name in there if name not in here)):
        mine, theirs = here.get(name, _MISSING), there.get(name, _MISSING)
        if type(mine) is not type(theirs) or mine != theirs:
            yield name, f"{name}: {_shown(mine)} here, {_shown(theirs)} there"


def _values(node: Node, ignored: Container[str]) -> dict[str, Held]:
    return {
        step(node.name, kind, key): held for kind, key, held in node.slots if key not in ignored
    }


def _of_tensors(one: Tensor, other: Tensor) -> Iterator[str]:
    for field in dataclasses.fields(Tensor):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if mine != theirs:
            yield f"tensor {one.name}, {field.name}: {mine!r:.80} here, {theirs!r:.80} there"


_MISSING: Any = object()


def _shown(held: Held) -> str:
    return "absent" if held is _MISSING else json.dumps(held)[:80]
