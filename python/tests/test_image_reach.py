"""What an image reaches beyond parameters and buffers, and what it leaves alone."""

from __future__ import annotations

import enum
import functools
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import by_torch
from image_models import Holder, Kernel, Scales, installed, numbers
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.image.graph import Graph

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

Pair = namedtuple("Pair", "scale width")


class Backend(enum.Enum):
    FAST = 1
    SLOW = 2


def closing_over(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    def read() -> torch.Tensor:
        return tensor

    return read


def with_default(tensor: torch.Tensor) -> Callable[..., torch.Tensor]:
    def read(scale: torch.Tensor = tensor, *, other: torch.Tensor = tensor) -> torch.Tensor:
        return scale + other

    return read


class Reader:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def read(self) -> torch.Tensor:
        return self.tensor


HELD: dict[str, Callable[[torch.Tensor], Any]] = {
    "an object": Reader,
    "slots": lambda tensor: Kernel(tensor, 3),
    "a frozen dataclass": Scales,
    "a dict": lambda tensor: {"scale": tensor, 1: [tensor]},
    "a list": lambda tensor: [[tensor], "text"],
    "a tuple": lambda tensor: (1, (tensor, tensor)),
    "a named tuple": lambda tensor: Pair(tensor, 2),
    "a partial": lambda tensor: functools.partial(torch.add, tensor, other=tensor),
    "a bound method": lambda tensor: Reader(tensor).read,
    "a closure": closing_over,
    "defaults": with_default,
}


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("before", ["without memory", "with memory"])
def test_tensors_are_found_and_exchanged(
    kind: str,
    before: str,
) -> None:
    device = "meta" if before == "without memory" else "cpu"
    fresh = Holder(held=HELD[kind](torch.empty(3, device=device)))
    result = installed(Holder(held=HELD[kind](numbers(3))), fresh)
    assert len(result.mapping) == 1


@pytest.mark.parametrize("kind", ["a dict", "a list", "a tuple"])
def test_containers_are_made(
    kind: str,
) -> None:
    installed(Holder(held=HELD[kind](numbers(3))), Holder(held=None))


@pytest.mark.parametrize("kind", HELD)
def test_a_tie_is_made_where_there_was_none(
    kind: str,
) -> None:
    tensor = numbers(3)
    weakly = torch.empty(3, device="meta")
    unseen = weakly.view(3)  # so that torch refuses to exchange it
    fresh: Any = Holder(held=HELD[kind](weakly), weight=nn.Parameter(torch.empty(3)))
    installed(Holder(held=HELD[kind](tensor), weight=tensor), fresh)
    assert unseen.is_meta


PLAIN = [
    *(None, True, 1, 1.0, "text", float("nan"), float("-inf"), (1, (2.0, "a")), ()),
    *(torch.bfloat16, torch.Size([2, 3]), Backend.SLOW),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
@pytest.mark.parametrize("before", [None, 1, Backend.FAST], ids=repr)
def test_plain_values_are_set(
    value: Any,
    before: Any,
) -> None:
    fresh: Any = Holder(value=before, gone=2)
    installed(Holder(value=value, weight=numbers(1)), fresh)
    assert repr(fresh.value) == repr(value)
    assert not hasattr(fresh, "gone")


def test_values_of_helper_objects_are_set() -> None:
    fresh: Any = Holder(held=Kernel(torch.empty(1), 0), more=Scales(torch.empty(1)))
    model = Holder(held=Kernel(numbers(2), 7), more=Scales(numbers(1), numbers(1), 4))
    result = installed(model, fresh)
    assert (fresh.held.width, fresh.more.bits) == (7, 4)
    assert set(result.values) == {"held.width", "more.bits"}


def test_cycles_and_shared_helpers() -> None:
    def make(tensor: torch.Tensor) -> Holder:
        reader: Any = Reader(tensor)
        reader.me, reader.list = reader, [reader]
        reader.list.append(reader.list)
        return Holder(one=reader, two=reader, child=Holder(again=reader))

    fresh: Any = make(torch.empty(2, device="meta"))
    installed(make(numbers(2)), fresh)
    assert fresh.one.tensor is fresh.child.again.tensor


def test_modules_that_only_helpers_hold() -> None:
    fresh: Any = Holder(held=[nn.Linear(2, 2, device="meta")])
    installed(Holder(held=[nn.Linear(2, 2)]), fresh)
    assert not fresh.held[0].weight.is_meta


def test_a_shared_module_is_one() -> None:
    def make(device: str) -> nn.Module:
        layer = nn.Linear(2, 2, device=device)
        return nn.Sequential(layer, nn.ReLU(), layer)

    result = installed(make("cpu"), make("meta"))
    assert list(result.mapping) == ["0.bias", "0.weight"]
    assert set(result.shared) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_what_is_opaque_is_left_alone() -> None:
    def make(tensor: torch.Tensor, path: str) -> Any:
        reader: Any = Reader(tensor)
        reader.path = path
        return Holder(config=reader, lock=threading.Lock(), weight=tensor)

    gpuwm.image.publish(make(numbers(2), "/here"), "opaque@v1", opaque=["*.Reader"])
    fresh = make(torch.empty(2), "/there")
    gpuwm.image.install(fresh, "opaque@v1")
    assert fresh.config.path == "/there"


class Running(nn.Module):
    """How it computes is the process's choice, and an attribute."""

    def __init__(self, compiles: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbers(2))
        self.eager = not compiles
        self.run: Any = self.compiled if compiles else self.plain
        helper: Any = Reader(numbers(2))
        helper.eager = not compiles
        self.helper = helper
        if compiles:
            self.callable: Any = functools.partial(self.plain, numbers(2))

    def plain(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * self.weight

    def compiled(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * self.weight


@pytest.mark.parametrize("compiles", [False, True])
def test_what_is_ignored_stays_as_the_fresh_module_has_it(compiles: bool) -> None:
    ignored = ["run", "*eager", "callable"]
    model, fresh = Running(compiles), Running(not compiles)
    run = fresh.run
    name = f"ignored@{compiles}"
    gpuwm.image.publish(model, name, ignored=ignored)
    result = gpuwm.image.install(fresh, name)
    assert (fresh.run, fresh.eager, fresh.helper.eager) == (run, compiles, compiles)
    assert hasattr(fresh, "callable") is not compiles
    assert set(result.shared) == {"weight", "helper.tensor"}
    first, second = (gpuwm.image.describe(each, ignored=ignored) for each in (model, fresh))
    assert gpuwm.image.differences(first, second) == []


def test_parameters_are_never_ignored() -> None:
    gpuwm.image.publish(Holder(weight=nn.Parameter(numbers(2))), "all@v1", ignored="*")
    assert gpuwm.image.install(Holder(), "all@v1").shared == ("weight",)


def test_the_order_in_which_attributes_were_set_is_of_no_matter() -> None:
    one, other = Holder(), Holder()
    helper = Reader(numbers(1))
    for model, names in ((one, "abc"), (other, "cba")):
        for name in names:
            setattr(model, name, helper)
    assert [node.name for node in Graph(one).nodes] == [node.name for node in Graph(other).nodes]


def test_hooks_are_not_recorded() -> None:
    model, fresh = nn.Linear(2, 2), nn.Linear(2, 2, device="meta")
    model.register_forward_hook(lambda *_: None)
    installed(model, fresh)
    assert not fresh._forward_hooks
