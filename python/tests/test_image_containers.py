"""What containers, arrays and functions hold: an image has it, or `publish` refuses it by name."""

from __future__ import annotations

import ast
import collections
import datetime
import enum
import functools
import io
import itertools
import operator
import re
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from conftest import DEVICE, by_torch
from image_models import Holder, installed, numbers
from torch import nn

import gpuwm
import gpuwm.image

np = pytest.importorskip("numpy")

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]
tags = itertools.count(1)


class Bits(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Table(set[Any]):
    pass


class Steps(collections.deque[Any]):
    pass


class Entry:
    def __init__(self, value: Any) -> None:
        self.value = value


class SlottedModule(nn.Module):
    __slots__ = ("scale",)


def tensor(value: int) -> torch.Tensor:
    return torch.full((2,), float(value), device=DEVICE)


def with_attribute(value: int) -> Any:
    def run(x: int = 1) -> int:
        return x

    run.scale = tensor(value)  # type: ignore[attr-defined]
    return run


def partial_with_attribute(value: int) -> Any:
    made = functools.partial(numbers, 2)
    made.scale = tensor(value)  # type: ignore[attr-defined]
    return made


def slotted(value: int) -> nn.Module:
    made = SlottedModule()
    made.scale = tensor(value)
    return made


# What each holds of a number, in the module that is published as in the fresh one.
CARRIED: dict[str, Callable[[int], Any]] = {
    "a set of a tensor": lambda n: {tensor(n), "a", 3},
    "a set of classes": lambda n: {nn.Linear, nn.functional.relu, (nn.ReLU, n)},
    "a set of objects": lambda n: {Entry(tensor(n))},
    "a set of its own class": lambda n: Table([tensor(n), n]),
    "a frozenset": lambda n: frozenset((tensor(n), nn.ReLU, n)),
    "a deque": lambda n: collections.deque([n, tensor(n)], maxlen=2 + n),
    "a deque of its own class": lambda n: Steps([n, tensor(n)]),
    "classes as keys": lambda n: {nn.Linear: tensor(n), nn.ReLU: [n]},
    "functions as keys": lambda n: {nn.functional.relu: tensor(n), torch.add: n},
    "tuples of classes as keys": lambda n: {(nn.Linear, 1): tensor(n), (1, 2): n},
    "a tensor as key": lambda n: {tensor(n): n},
    "an object as key": lambda n: {Entry(n): tensor(n)},
    "a device as key": lambda n: {torch.device(DEVICE): tensor(n)},
    "a defaultdict": lambda n: collections.defaultdict(list, {"a": [tensor(n)], "b": [n]}),
    "an OrderedDict": lambda n: collections.OrderedDict(a=tensor(n), b=n),
    "a Counter": lambda n: collections.Counter({"a": n, "b": 2 * n}),
    "an array": lambda n: np.full((2, 3), n),
    "an array of bools": lambda n: np.arange(4) < n,
    "an array of times": lambda n: np.array(["2020-01-01", "NaT"], "M8[D]") + n,
    "an array in Fortran's order": lambda n: np.asfortranarray(np.arange(6.0).reshape(2, 3) * n),
    "an array without dimensions": lambda n: np.array(float(n)),
    "an empty array": lambda n: np.zeros((0, n)),
    "an array in a list": lambda n: [{"a": np.full(3, n, ">i4")}],
    "numbers of NumPy": lambda n: [np.float32(n), np.float64(n), np.bool_(n > 5), np.int8(n)],
    "dtypes of NumPy": lambda n: [np.dtype(f">i{2 if n == 2 else 8}"), np.dtype("U3")],
    "a bytearray": lambda n: bytearray([n]),
    "a range and a slice": lambda n: [range(n), slice(None, n), slice((n, "a"))],
    "a memory format": lambda n: [
        torch.channels_last if n == 2 else torch.contiguous_format,
        torch.sparse_csr if n == 2 else torch.strided,
    ],
    "flags": lambda n: Bits.LOW | Bits.HIGH if n == 2 else Bits.LOW,
    "what was set on a function": with_attribute,
    "what was set on a partial": partial_with_attribute,
    "a slot of a module": slotted,
    "a method of a class": lambda n: torch.Tensor.add,
}


def content(value: Any) -> Any:
    """What is in it, as values that can be compared: written without the code that is tested."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist())
    if isinstance(value, np.ndarray):
        form = (value.dtype.str, value.shape, value.flags.f_contiguous, value.flags.writeable)
        return ("array", form, value.tolist())
    if isinstance(value, np.generic):
        return (kind, value.dtype.str, value.item())
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return (kind, factory, [(content(key), content(each)) for key, each in value.items()])
    if isinstance(value, set | frozenset):
        return (kind, sorted((content(each) for each in value), key=repr))
    if isinstance(value, collections.deque):
        return (kind, value.maxlen, [content(each) for each in value])
    if isinstance(value, list | tuple):
        return (kind, [content(each) for each in value])
    if isinstance(value, Entry):
        return (kind, content(value.value))
    if isinstance(value, types.FunctionType | functools.partial | SlottedModule):
        return (getattr(value, "__qualname__", kind), content(getattr(value, "scale", None)))
    return (kind, repr(value))


@pytest.mark.parametrize("kind", CARRIED)
def test_what_is_held_is_carried(kind: str) -> None:
    """Into a module that holds others of the same kind."""
    make = CARRIED[kind]
    model, fresh = (Holder(weight=numbers(2), held=make(n)) for n in (2, 9))
    expected = content(make(2))
    installed(model, fresh)
    assert content(fresh.held) == expected
    assert content(model.held) == expected
    same: Any = Holder(weight=numbers(2), held=make(2))
    installed(model, same)
    assert content(same.held) == expected


MADE = [
    *("a set of a tensor", "a frozenset", "a deque", "a defaultdict", "an OrderedDict"),
    *("an array", "numbers of NumPy", "a bytearray", "flags", "classes as keys"),
    *("a set of its own class", "a deque of its own class", "a memory format"),
    *("a set of objects", "an object as key"),
]


@pytest.mark.parametrize("kind", MADE)
def test_a_module_is_made_with_it(kind: str) -> None:
    make, name = CARRIED[kind], f"containers@v{next(tags)}"
    gpuwm.image.publish(Holder(weight=numbers(2), held=make(2)), name, makeable=True)
    found: Any = gpuwm.image.module(name)
    assert content(found.held) == content(make(2))


LACKED = [
    *("a set of a tensor", "a deque", "an OrderedDict", "an array", "a bytearray"),
    *("numbers of NumPy", "an array in a list"),
]


@pytest.mark.parametrize("kind", LACKED)
def test_it_is_made_where_the_module_has_none(kind: str) -> None:
    fresh: Any = Holder(held=None)
    installed(Holder(weight=numbers(2), held=CARRIED[kind](2)), fresh)
    assert content(fresh.held) == content(CARRIED[kind](2))


@pytest.mark.parametrize("kind", ["a set of a tensor", "a deque", "an array", "flags"])
def test_it_may_hang_on_a_tensor(kind: str) -> None:
    def make(n: int) -> Any:
        weight: Any = nn.Parameter(numbers(2), requires_grad=False)
        weight.state = Entry(CARRIED[kind](n))
        return Holder(weight=weight)

    fresh = make(9)
    installed(make(2), fresh)
    assert content(fresh.weight.state) == content(make(2).weight.state)


def test_the_order_of_a_dict_is_the_versions() -> None:
    """A program that goes through the layers of a dict computes in its order."""
    fresh: Any = Holder(held={nn.ReLU: 2, "b": 3, "a": tensor(1)})
    installed(Holder(held={"a": tensor(1), nn.ReLU: 2, "b": 3}), fresh)
    assert list(fresh.held) == ["a", nn.ReLU, "b"]


def test_items_that_only_the_module_has_are_dropped() -> None:
    fresh: Any = Holder(
        weight=numbers(2),
        held={nn.Linear: 1, Entry(1): 2, 3: 4},
        some={nn.ReLU, numbers(1)},
        many=collections.deque([1, 2, 3]),
    )
    installed(
        Holder(weight=numbers(2), held={3: 4}, some={nn.ReLU}, many=collections.deque([1])), fresh
    )
    assert (fresh.held, fresh.some) == ({3: 4}, {nn.ReLU})
    assert fresh.many == collections.deque([1])


def test_modules_as_keys_are_those_of_the_tree() -> None:
    def make(n: int) -> Any:
        model: Any = Holder(one=nn.Linear(1, 1), two=nn.Linear(1, 1))
        model.held = {model.two: tensor(n), model.one: n}
        model.some = {model.one}
        return model

    fresh = make(9)
    fresh.some = {fresh.two}
    installed(make(2), fresh)
    assert list(fresh.held) == [fresh.two, fresh.one]
    assert (content(fresh.held[fresh.two]), fresh.held[fresh.one]) == (content(tensor(2)), 2)
    assert fresh.some == {fresh.one}


def test_one_object_in_a_set_and_elsewhere_is_one() -> None:
    def make(n: int) -> Any:
        one, two, array = Entry(n), Entry(n + 1), np.full(2, n)
        return Holder(
            *(), weight=numbers(1), one=one, some={two, one}, two=two, array=array, again=[array]
        )

    fresh, lacking = make(9), Holder(array=None, again=[])
    installed(make(2), fresh)
    assert fresh.some == {fresh.one, fresh.two}
    assert (fresh.one.value, fresh.two.value) == (2, 3)
    made: Any = gpuwm.image.module(published(make(2)))
    for each in (fresh, made):
        assert each.array is each.again[0]
    assert lacking.array is None


def published(model: nn.Module, **options: Any) -> str:
    name = f"containers@v{next(tags)}"
    gpuwm.image.publish(model, name, **options)
    return name


def test_a_refused_install_changes_no_container() -> None:
    def make(n: int, last: Any) -> Any:
        held = {nn.Linear: n, "a": n}
        return Holder(
            weight=numbers(1), held=held, some={n, nn.ReLU}, many=collections.deque([n]), z=last
        )

    name = published(make(2, Entry(1)))
    fresh = make(9, numbers)  # a function is in the place of an object
    containers = content([fresh.held, fresh.some, fresh.many])
    with pytest.raises(gpuwm.BindError):
        gpuwm.image.install(fresh, name)
    assert content([fresh.held, fresh.some, fresh.many]) == containers


# ---- refusals ----------------------------------------------------------------------------------


class Two(NamedTuple):
    a: int
    b: int


class Number(int):
    """Its value is not among its attributes."""


class Hashed:
    """Its hash is that of what is in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and self.value == other.value


Mask: Any = type("Mask", (np.ndarray,), {})


KEPT = numbers(1)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a key with a hash of its own": (
        lambda: {"a": 1, Hashed(2): numbers(1)},
        r"held<key 0>: a Hashed \(test_image_containers.Hashed\), which image_models.Holder holds",
    ),
    "an element with a hash of its own": (lambda: {Hashed(2)}, r"held<key 0>: a Hashed"),
    "a key with one in it": (lambda: {(1, Hashed(2)): 3}, r"held<key 0>: a tuple"),
    "objects as elements of an array": (lambda: np.array([object()]), r"held: a ndarray"),
    "records of an array": (lambda: np.zeros(2, "i4,f8"), r"held: a ndarray"),
    "a large array": (lambda: np.zeros(2 << 20, "u1"), r"held: a ndarray"),
    "a subclass of arrays": (lambda: np.zeros(2).view(Mask), r"held: a Mask"),
    "a masked array": (lambda: np.ma.array([1, 2], mask=[0, 1]), r"held: a MaskedArray"),
    "a number of a class of its own": (lambda: Number(3), r"held: a Number"),
    "a time": (lambda: datetime.datetime(2026, 1, 1), r"held: a datetime \(datetime.datetime\)"),
    "what C keeps in it": (lambda: operator.itemgetter("a"), r"held: a itemgetter"),
    "an iterator": (lambda: iter([1, 2]), r"held: a list_iterator"),
    "a generator": (lambda: (n for n in [1]), r"held: a generator"),
    "a method of C": (lambda: [1].append, r"held: a builtin_function_or_method"),
    "a method of a tensor": (lambda: KEPT.add_, r"held: a builtin_function_or_method"),
    "a view of a dict": (lambda: types.MappingProxyType({"a": 1}), r"held: a mappingproxy"),
    "a storage": (lambda: numbers(2).untyped_storage(), r"held: a UntypedStorage"),
    "a weak reference to a tensor": (lambda: weakref.ref(KEPT), r"held: a (ReferenceType|ref\b)"),
    "tensors that are held weakly": (
        lambda: weakref.WeakValueDictionary(a=KEPT),
        r"held: a WeakValueDictionary",
    ),
    "tensors of what is held weakly": (
        lambda: weakref.WeakKeyDictionary({KEPT: KEPT}),
        r"held: a WeakKeyDictionary",
    ),
    "a set of what is held weakly": (lambda: weakref.WeakSet([KEPT]), r"held: a WeakSet"),
    "an item": (lambda: {"a": [1, iter([1])]}, r"held\['a'\]\[1\]: a list_iterator"),
    "a variable of a closure": (
        lambda: (lambda held: lambda: held)(Number(1)),
        r"held<held>: a Number",
    ),
    "an attribute of an object": (lambda: Entry(Number(1)), r"held.value: a Number"),
    "what is in a named tuple": (
        lambda: Two(1, Number(2)),
        r"held\[1\]: a Number",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_image_has_is_refused_by_name(kind: str) -> None:
    """The remedy is followed."""
    make, expected = REFUSED[kind]
    model, fresh = (Holder(weight=numbers(2), held=make()) for _ in range(2))
    own: Any = fresh.held
    name = f"containers@v{next(tags)}"
    with pytest.raises(gpuwm.Unsupported, match=expected) as error:
        gpuwm.image.publish(model, name)
    found = re.search(r"ignored=(\[.*\])", str(error.value))
    assert found is not None
    with pytest.raises(gpuwm.NotFound):
        gpuwm.attach(name)
    gpuwm.image.publish(model, name, ignored=ast.literal_eval(found[1]))
    gpuwm.image.install(fresh, name)
    assert fresh.held is own


def test_a_class_is_left_out_by_name() -> None:
    gpuwm.image.publish(
        Holder(weight=numbers(2), held=[Number(3)]), "opaque@v1", opaque=["*.Number"]
    )
    fresh: Any = Holder(weight=numbers(2), held=[Number(4)])
    gpuwm.image.install(fresh, "opaque@v1")
    assert fresh.held == [4]


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_packed_weights_of_torch_are_refused() -> None:
    """torch.ao keeps the weights of its quantised layers in an object of C++."""
    layer: Any = torch.ao.nn.quantized.Linear(2, 2)  # type: ignore[no-untyped-call]
    with pytest.raises(gpuwm.Unsupported, match=r"_packed_params: a ScriptObject"):
        gpuwm.image.publish(nn.Sequential(layer, nn.Linear(1, 1)), "packed@v1")


STATELESS: dict[str, Any] = {
    "an object": object(),
    "an ellipsis": ...,
    "a type": list[int],
    "a function of C": len,
    "a function of pybind11": torch._C._is_tracing,
    "a class": nn.Linear,
    "a module of Python": io,
    "a device": torch.device(DEVICE),
}


@pytest.mark.parametrize("kind", STATELESS)
def test_what_has_no_content_is_compared_by_name(kind: str) -> None:
    value = STATELESS[kind]
    installed(Holder(weight=numbers(1), held=value), Holder(weight=numbers(1), held=value))
