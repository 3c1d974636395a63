"""Walks through nested values and replaces some of their leaves."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import errors

# Values that are never replaced.
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))

# Dicts of which a copy can be made by their items.
_DICTS = frozenset((dict, collections.OrderedDict, collections.defaultdict))

Replace = Callable[[Any, str], Any]


def replaced(value: Any, replace: Replace) -> Any:
    """A copy of a nested value with other leaves.

    Dicts, lists, tuples, named tuples, OrderedDicts, defaultdicts and instances of dataclasses are
    walked through. The original and its containers stay as they are. A tuple, or a dataclass, of
    which nothing is replaced is not copied. Of any other subclass of dict, list or tuple nobody
    knows how to make a copy with other items, so the copy has the original object. If a leaf in it
    is replaced, `replaced` raises Unsupported. Every other value is a leaf.

    replace: is called with each leaf that is no plain value (a number, a text, None), in order, and
    with the leaf's place (".pixels[0]['x']"). Returns the leaf itself if it stays. It is called
    once for a leaf that occurs several times.
    """
    return _Walk(replace).of(value, "")


class _Walk:
    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._changes = 0  # how many leaves were replaced, counted at each place
        # Of each leaf: the leaf, which keeps its id from being given to another one, and the new.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, place: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _DICTS:
            return self._dict(value, place)
        if kind is list:
            return list(self._items(value, place))
        if kind is tuple or (isinstance(value, tuple) and _is_rebuilt(kind)):
            return self._tuple(value, place)
        if isinstance(value, (dict, list, tuple)):
            return self._subclass(value, place)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value, place)
        return self._leaf(value, place)

    def _leaf(self, value: Any, place: str) -> Any:
        if id(value) not in self._seen:
            self._seen[id(value)] = value, self._replace(value, place)
        found = self._seen[id(value)][1]
        self._changes += found is not value
        return found

    def _dict(self, value: dict[Any, Any], place: str) -> Any:
        found = {key: self.of(each, f"{place}[{key!r}]") for key, each in value.items()}
        if type(value) is dict:
            return found
        if isinstance(value, collections.defaultdict):
            return collections.defaultdict(value.default_factory, found)
        return collections.OrderedDict(found)

    def _items(self, value: Sequence[Any], place: str) -> Iterator[Any]:
        return (self.of(each, f"{place}[{position}]") for position, each in enumerate(value))

    def _tuple(self, value: tuple[Any, ...], place: str) -> Any:
        kind: Any = type(value)
        named = getattr(kind, "_fields", None)
        if named is None:
            found = tuple(self._items(value, place))
        else:
            found = tuple(
                self.of(each, f"{place}.{name}") for name, each in zip(named, value, strict=True)
            )
        if all(new is old for new, old in zip(found, value, strict=True)):
            return value
        if kind is tuple:
            return found
        return kind(found) if named is None else kind._make(found)

    def _subclass(self, value: Any, place: str) -> Any:
        before = self._changes
        if isinstance(value, dict):
            self._dict(value, place)
        else:
            collections.deque(self._items(value, place), maxlen=0)
        if self._changes == before:
            return value
        kind = type(value)
        raise errors.Unsupported(
            f"{place}{': ' if place else ''}a copy of a {kind.__module__}.{kind.__qualname__} with "
            "other items can't be made",
            "use a dict, list, tuple, named tuple or dataclass",
        )

    def _dataclass(self, value: Any, place: str) -> Any:
        found: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                old = getattr(value, field.name)
                new = self.of(old, f"{place}.{field.name}")
                if new is not old:
                    found[field.name] = new
        if not found:
            return value
        made = copy.copy(value)  # without __init__: what that did is copied with the rest
        for name, new in found.items():
            object.__setattr__(made, name, new)  # also of a frozen one
        return made


def _is_rebuilt(kind: type) -> bool:
    """Whether a subclass of tuple is a named tuple, or a struct sequence as torch.max returns."""
    return hasattr(kind, "_make") or hasattr(kind, "n_sequence_fields")
