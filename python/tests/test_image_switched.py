"""A switch between two images moves tensors: it tells of what else differs."""

from __future__ import annotations

import gc
import itertools
import re
from typing import Any

import pytest
from conftest import DEVICE, by_torch
from image_models import Holder, numbers
from torch import nn

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
