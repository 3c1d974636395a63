"""A switch between two images moves tensors: it tells of what else differs."""

from __future__ import annotations

import functools
import gc
import itertools
import re
from typing import Any, cast

import pytest
import torch
from conftest import DEVICE, by_torch
from image_models import Holder, numbers
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import gpuwm
import gpuwm.image

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]
tags = itertools.count(1)


def published(model: nn.Module) -> str:
    return str(gpuwm.image.publish(model, f"switched@v{next(tags)}").version)


class Flagged(Holder):
    def __init__(self, factor: float, word: str = "same") -> None:
        super().__init__(factor=factor, inner=Holder(words=[word, 2], flag=factor > 1))
        self.weight = nn.Parameter(numbers(2), requires_grad=False)


def moved(one: Any, other: Any, stale: Any = (), *, by: str) -> None:
    """Installs an image of the one, and goes on to one of the other. Both are arguments."""
    model = Flagged(0.0)
    first, second = (published(Flagged(*each)) for each in (one, other))
    gc.collect()  # no other attachment may share the memory
    mapping = gpuwm.image.install(model, first).mapping
    if by == "switch":
        mapping.switch(second, stale=stale)
    else:
        with gpuwm.attach(second, device=DEVICE) as there:
            mapping.exchange(there, stale=stale)
    assert str(mapping.version) == second


@pytest.mark.parametrize("by", ["switch", "exchange"])
def test_a_switch_tells_of_other_plain_values(by: str) -> None:
    with pytest.warns(RuntimeWarning) as told:
        moved((1.0, "a"), (2.0, "b"), by=by)
    (text,) = [str(each.message) for each in told]
    assert "factor: 1.0 here, 2.0 there" in text
    assert "inner.flag: false here, true there" in text
    assert "inner.words[0]: " in text
    assert told[0].filename == __file__


@pytest.mark.parametrize("by", ["switch", "exchange"])
def test_equal_values_and_those_that_may_stay_are_not_told(by: str) -> None:
    moved((1.0,), (1.0,), by=by)
    moved((1.0,), (2.0,), stale=["factor", "inner.*"], by=by)


def test_a_switch_tells_of_what_it_only_names() -> None:
    def holding(text: str) -> Holder:
        weight = nn.Parameter(numbers(2), requires_grad=False)
        return Holder(weight=weight, held=re.compile(text))

    first, second = (published(holding(text)) for text in "ab")
    model = holding("a")
    gc.collect()
    mapping = gpuwm.image.install(model, first).mapping
    with pytest.warns(RuntimeWarning, match='held.pattern: "a" here, "b" there'):
        mapping.switch(second)


def test_nobody_is_told_where_no_module_lies_on_the_image() -> None:
    first, second = published(Flagged(1.0)), published(Flagged(2.0))
    with gpuwm.attach(first, device=DEVICE) as mapping:
        mapping.switch(second)


Pair: Any = TwoTensor  # torch has no types for it


class Copied(nn.Module):
    """Every way in which a module may have a copy of its own."""

    def __init__(self, value: float) -> None:
        super().__init__()
        made = functools.partial(torch.full, fill_value=value, device=DEVICE)
        self.weight = nn.Parameter(made((4,)), requires_grad=False)
        self.hung = nn.Parameter(made((4,)), requires_grad=False)
        cast(Any, self.hung).scale = made((4,))
        self.register_buffer("whole", made((8,)))
        self.register_buffer("part", cast(torch.Tensor, self.whole)[2:6])
        self.register_buffer("repeated", made((1, 4)).expand(3, 4))
        self.register_buffer("pair", Pair(made((4,)), made((4,))))
        self.view = cast(torch.Tensor, self.whole)[:3]
        self.attribute = made((4,))
        self.lists = {"key": [made((2,))]}
        self.small = made((4,)).to(torch.float8_e4m3fn)
        self.workspace = made((2,))

    def values(self) -> dict[str, list[float]]:
        pair: Any = self.pair
        found = {
            **dict(self.named_parameters()),
            **{name: each for name, each in self.named_buffers() if name != "pair"},
            **{name: each for name, each in vars(self).items() if isinstance(each, torch.Tensor)},
            "pair.a": pair.a,
            "pair.b": pair.b,
            "lists": self.lists["key"][0],
            "hung.scale": cast(Any, self.hung).scale,
        }
        return {name: each.float().unique().tolist() for name, each in found.items()}


PRIVATE = ["hung.scale", "attribute", "lists*", "small"]


def copied(value: float) -> tuple[Copied, str]:
    """A module, and a version of it."""
    model, ref = Copied(value), f"switched@v{next(tags)}"
    gpuwm.image.publish(model, ref, private=PRIVATE, written=["workspace"])
    return model, ref


def gone_on(mapping: Any, ref: str, by: str, **options: Any) -> None:
    gc.collect()  # no other attachment may share the memory
    if by == "switch":
        mapping.switch(ref, **options)
    else:
        with gpuwm.attach(ref, device=DEVICE) as there:
            mapping.exchange(there, **options)


@pytest.mark.parametrize("by", ["switch", "exchange"])
@pytest.mark.parametrize("who", ["published", "installed"])
def test_every_private_copy_gets_the_new_values(who: str, by: str) -> None:
    model, first = copied(1.0)
    second = copied(2.0)[1]
    mapping = gpuwm.mapping_of(model)
    if who == "installed":
        model = Copied(0.0)
        mapping = gpuwm.image.install(model, first, private=PRIVATE).mapping
    assert set(map(tuple, model.values().values())) == {(1.0,)}
    gone_on(mapping, second, by)
    assert {name: each for name, each in model.values().items() if each != [2.0]} == {}


def test_a_switch_counts_as_a_write_into_private_copies() -> None:
    first, second = copied(1.0)[1], copied(2.0)[1]
    model = Copied(0.0)
    mapping = gpuwm.image.install(model, first, private=PRIVATE).mapping
    before = model.attribute._version
    gone_on(mapping, second, "switch")
    assert model.attribute._version > before


def test_copies_that_may_stay_and_what_a_user_set_stay() -> None:
    first, second = copied(1.0)[1], copied(2.0)[1]
    model = Copied(0.0)
    mapping = gpuwm.image.install(model, first, private=PRIVATE).mapping
    model.attribute = torch.zeros(4, device=DEVICE)
    gone_on(mapping, second, "switch", stale=["small", "lists*"])
    found = model.values()
    assert found["attribute"] == [0.0]
    assert found["small"] == found["lists"] == [1.0]
    assert found["workspace"] == [2.0]


def test_a_copy_that_another_version_has_now_is_not_written() -> None:
    first, second = copied(1.0)[1], copied(2.0)[1]
    third, tensor = published(Holder(attribute=numbers(4))), numbers(4)
    model = Copied(0.0)
    mapping = gpuwm.image.install(model, first, private=PRIVATE).mapping
    holder = Holder(attribute=model.attribute)
    gpuwm.image.install(holder, third)
    gone_on(mapping, second, "switch")
    assert torch.equal(cast(torch.Tensor, holder.attribute), tensor)


def test_what_was_installed_is_installed_again_in_silence() -> None:
    model = Copied(0.0)
    gc.disable()  # the copies of the first time are not garbage that waits for it
    try:
        for ref in (copied(1.0)[1], copied(2.0)[1]):
            gpuwm.image.install(model, ref, private=PRIVATE)
    finally:
        gc.enable()
    assert set(map(tuple, model.values().values())) == {(2.0,)}


def test_a_copy_of_another_size_is_refused_before_anything_moves() -> None:
    first, second = copied(1.0)[1], copied(2.0)[1]
    model = Copied(0.0)
    mapping = gpuwm.image.install(model, first, private=PRIVATE).mapping
    model.attribute.resize_(7)
    with pytest.raises(gpuwm.Mismatch, match=r"private copy attribute is \[7\] now, \[4\] in the"):
        gone_on(mapping, second, "switch")
    assert model.values()["weight"] == [1.0]


def test_a_version_is_not_exchanged_for_one_with_copies_of_its_own() -> None:
    def holding(value: float) -> Holder:
        return Holder(attribute=torch.full((4,), value, device=DEVICE))

    first, second = (published(holding(each)) for each in (1.0, 2.0))
    gc.collect()
    mapping, there = (gpuwm.attach(each, device=DEVICE) for each in (first, second))
    model = holding(0.0)
    gpuwm.image.install(model, there, private=["attribute"])
    with pytest.raises(gpuwm.Busy, match="a model is bound: attribute"):
        mapping.exchange(there)
