"""Nested values of which leaves are replaced: what is walked through, and what stays as it was."""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import gpuwm
from gpuwm.transport.trees import replaced


class Leaf:
    """Has an identity, and nothing else."""


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: Any
    other: Any = None


@dataclasses.dataclass
class Counted:
    value: Any
    made: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.made = 1

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def new(leaf: Any, place: str) -> Any:
    return (place, leaf) if isinstance(leaf, Leaf) else leaf


def nested(rng: random.Random, depth: int) -> Any:
    """A random value of all kinds that are walked through."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([Leaf(), None, 5, "text", b"bytes", torch.Size([2]), {1, 2}, Leaf])

    def parts() -> list[Any]:
        return [nested(rng, depth - 1) for _ in range(rng.randrange(4))]

    def one() -> Any:
        return nested(rng, depth - 1)

    kinds: list[Callable[[], Any]] = [
        lambda: parts(),
        lambda: tuple(parts()),
        lambda: dict(enumerate(parts())),
        lambda: collections.OrderedDict(enumerate(parts())),
        lambda: collections.defaultdict(list, enumerate(parts())),
        lambda: Pair(one(), one()),
        lambda: Frozen(one(), one()),
        lambda: Counted(one()),
    ]
    return rng.choice(kinds)()


def described(value: Any, leaves: list[Any]) -> Any:
    """The value as texts, and its leaves."""
    if isinstance(value, dict):
        return type(value).__name__, [(k, described(v, leaves)) for k, v in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value)]
        return type(value).__name__, [described(getattr(value, f), leaves) for f in fields]
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value).__name__, [described(each, leaves) for each in value]
    if isinstance(value, Leaf):
        leaves.append(value)
        return "leaf"
    return repr(value)


@pytest.mark.parametrize("seed", range(200))
def test_random_values_come_back(seed: int) -> None:
    value = nested(random.Random(seed), 5)
    leaves: list[Any] = []
    before = described(value, leaves)
    others = {id(leaf): Leaf() for leaf in leaves}
    backs = {id(other): leaf for leaf in leaves for other in [others[id(leaf)]]}
    there = replaced(value, lambda leaf, _: others.get(id(leaf), leaf))
    after: list[Any] = []
    assert described(there, after) == before
    assert [id(leaf) for leaf in after] == [id(others[id(leaf)]) for leaf in leaves]
    again: list[Any] = []
    assert described(value, again) == before  # the original is as it was
    assert all(a is b for a, b in zip(again, leaves, strict=True))
    back: list[Any] = []
    assert described(replaced(there, lambda each, _: backs.get(id(each), each)), back) == before
    assert all(a is b for a, b in zip(back, leaves, strict=True))


def test_places_are_told() -> None:
    places: list[str] = []
    value = {"x": [Leaf(), Pair(Leaf(), (Frozen(Leaf()),))], 7: None}

    def note(leaf: Any, place: str) -> Any:
        places.append(place)
        return leaf

    replaced(value, note)
    assert places == ["['x'][0]", "['x'][1].left", "['x'][1].right[0].value"]


def test_a_leaf_that_occurs_twice_is_replaced_once() -> None:
    leaf = Leaf()
    first, (second,) = replaced([leaf, (leaf,)], lambda _each, _place: Leaf())
    assert first is second
    assert first is not leaf


def test_kinds_stay() -> None:
    leaf = Leaf()
    by_default: dict[str, Any] = collections.defaultdict(list)
    by_default["a"] = leaf
    ordered = collections.OrderedDict(b=leaf, a=1)
    found = replaced((by_default, ordered, Pair(leaf, 1), Frozen(leaf), Counted(leaf)), new)
    assert [type(each) for each in found] == [
        *(collections.defaultdict, collections.OrderedDict, Pair, Frozen, Counted),
    ]
    assert found[0]["missing"] == []
    assert list(found[1]) == ["b", "a"]
    assert found[4].made == 1
    assert by_default["a"] is leaf
    most = torch.max(torch.ones(2, 2), 0)
    back = replaced(most, lambda each, _: each + 1)
    assert type(back) is type(most)
    assert back.values.tolist() == [2, 2]


class Loud(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.upper(), value)


class Items(list[Any]):
    pass


@dataclasses.dataclass
class Both(dict[str, Any]):
    value: Any


def test_other_subclasses_stay_or_are_refused() -> None:
    counter = collections.Counter("aab")
    value = {"c": counter, "l": Loud(a=[1]), "i": Items([(1, {})]), "t": Leaf(), "b": Both(1)}
    found = replaced(value, new)
    assert all(found[key] is value[key] for key in "clib")
    assert counter == {"a": 2, "b": 1}
    leaf = Leaf()
    both = Both(1)
    both["x"] = leaf
    for holder in (Loud(a=leaf), Items([leaf]), Items([[leaf]]), both, Loud(a=[leaf])):
        kind = type(holder).__name__
        with pytest.raises(gpuwm.Unsupported, match=rf"^\['x'\]: .*\.{kind} "):
            replaced({"seen": leaf, "x": holder}, new)


def test_what_has_no_leaves_is_not_copied() -> None:
    value = (Frozen(5), Pair(None, "x"), torch.Size([1, 2]))
    assert replaced(value, new) is value
    assert replaced(None, new) is None


def test_a_class_and_an_unset_field_are_left_alone() -> None:
    unset = copy.copy(Counted(1))
    del unset.made
    assert replaced([Frozen, unset], new) == [Frozen, unset]


def test_an_error_comes_through() -> None:
    def fail(_leaf: Any, place: str) -> Any:
        raise ValueError(place)

    with pytest.raises(ValueError, match=r"^\[1\]$"):
        replaced([None, Leaf()], fail)
