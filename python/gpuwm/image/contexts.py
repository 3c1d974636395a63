"""What subclasses of tensors say of themselves besides their parts: plain values, classes and
functions, and objects made of these, such as the layouts of torchao."""

from __future__ import annotations

from typing import Any

import torch

from . import values
from .kinds import Opaque, class_name, owner_kind, said_of
from .objects import MISSING, Objects
from .slots import ATTRIBUTE, put, rebuilt, slots, step

Json = Any
_DEEPEST = 50  # objects in objects, each of which takes some of Python's stack
_OPAQUE = Opaque()
_ANYWHERE = Objects(torch.device("cpu"))  # a device in a context is that of the version


def encoded(context: Any) -> Json:
    """Encodes a context, or returns NOT_PLAIN."""
    return _encoded(context, frozenset())


def uncarried(path: str, context: Any, deep: int = 0) -> tuple[str, Any]:
    """What of a context that `encoded` refuses can't be carried, with its path."""
    for slot in (_parts(context) or ()) if deep < _DEEPEST else ():
        if encoded(slot.value) is values.NOT_PLAIN:
            return uncarried(step(path, slot.kind, slot.key), slot.value, deep + 1)
    return path, context


def decoded(content: Json, objects: Objects) -> Any:
    """Makes a context, without constructors. Raises ValueError if `encoded` can't have made it, and
    LookupError for what this process has not imported."""
    if not (isinstance(content, dict) and len(content) == 1):
        return values.decoded(content)
    ((kind, held),) = content.items()
    if kind not in _DECODERS:
        return values.decoded(content)
    return _DECODERS[kind](held, objects)


# ---- writing -----------------------------------------------------------------------------------


def _encoded(value: Any, above: frozenset[int]) -> Json:
    """above: the ids of what holds the value, which may not hold itself."""
    plain = values.encoded(value)
    if plain is not values.NOT_PLAIN:
        return plain
    if isinstance(value, torch.Tensor) or id(value) in above or len(above) == _DEEPEST:
        return values.NOT_PLAIN
    parts = _parts(value)
    if parts is None:
        said = said_of(value)
        is_found = isinstance(value, torch.device) or _ANYWHERE.other(said) is value
        return {"named": said} if is_found else values.NOT_PLAIN
    below = above | {id(value)}
    found = [[slot.kind, values.encoded(slot.key), _encoded(slot.value, below)] for slot in parts]
    if any(values.NOT_PLAIN in row for row in found):
        return values.NOT_PLAIN
    kind = type(value)
    if kind in (list, tuple):
        return {kind.__name__: [held for _, _, held in found]}
    if kind is dict:
        return {"dict": [[key, held] for _, key, held in found]}
    if _ANYWHERE.blank(owner_kind(value, _OPAQUE), class_name(kind), len(found)) is MISSING:
        return values.NOT_PLAIN
    return {"object": [owner_kind(value, _OPAQUE), class_name(kind), found]}


def _parts(value: Any) -> list[Any] | None:
    """None: the value is not looked into."""
    kind = owner_kind(value, _OPAQUE)
    return slots(value) if kind in ("object", "dict", "list", "tuple") else None


# ---- reading -----------------------------------------------------------------------------------


def _list(content: Json, objects: Objects) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError(f"{content!r:.80} is no list")
    return [decoded(part, objects) for part in content]


def _dict(content: Json, objects: Objects) -> dict[Any, Any]:
    rows = [_list(row, objects) for row in content] if isinstance(content, list) else [[]]
    if any(len(row) != 2 for row in rows):
        raise ValueError(f"{content!r:.80} is no dict")
    try:
        return dict(rows)
    except TypeError:
        raise ValueError(f"a key of {content!r:.80} can't be one") from None


def _named(content: Json, objects: Objects) -> Any:
    if not isinstance(content, str):
        raise ValueError(f"{content!r:.80} is no name")
    found = objects.other(content)
    if found is MISSING:
        raise LookupError(content)
    return found


def _object(content: Json, objects: Objects) -> Any:
    if not (isinstance(content, list) and len(content) == 3 and isinstance(content[2], list)):
        raise ValueError(f"{content!r:.80} is no object")
    kind, said, rows = content
    if kind not in ("object", "dict", "list", "tuple") or not isinstance(said, str):
        raise ValueError(f"{content!r:.80} is no object")
    if any(not (isinstance(row, list) and len(row) == 3) for row in rows):
        raise ValueError(f"{content!r:.80} is no object")
    held = [(row[0], values.decoded(row[1]), decoded(row[2], objects)) for row in rows]
    items = [value for slot, _, value in held if slot != ATTRIBUTE]
    made = objects.blank(kind, said, len(items))
    if made is MISSING:
        raise LookupError(said)
    if kind == "tuple":
        made = rebuilt(made, items)
    try:
        for slot, key, value in held:
            if slot == ATTRIBUTE or kind != "tuple":
                put(made, slot, key, value)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{said} has no place for a value: {error}") from None
    return made


_DECODERS = {"list": _list, "dict": _dict, "named": _named, "object": _object} | {
    "tuple": lambda content, objects: tuple(_list(content, objects))
}
