"""Whether one image can stand where another is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Daemon, by_torch
from image_models import loaded

import gpuwm
import gpuwm.image
from gpuwm.image import _compare

pytestmark = by_torch
_numbers = itertools.count()


def published(change: Callable[[Any], None] = lambda model: None) -> gpuwm.Mapping:
    model = loaded()
    change(model)
    return gpuwm.image.publish(model, f"compared@v{next(_numbers)}")


@pytest.fixture(scope="module")
def first(daemon: Daemon) -> gpuwm.Mapping:
    return published()


def double(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(2)


def test_other_bytes_are_no_difference(first: gpuwm.Mapping) -> None:
    assert _compare.difference(first, published()) is None
    other = published(double)
    assert other.version.content != first.version.content
    assert _compare.difference(first, other) is None


def width(model: Any) -> None:
    model.layers[0].method.width = 7


def as_bool(model: Any) -> None:
    model.layers[0].method.calls = True  # which equals 1


def more(model: Any) -> None:
    model.layers[1].method.more = "added"


def fewer(model: Any) -> None:
    del model.layers[1].method.calls


def half(model: Any) -> None:
    model.layers[0].weight.data = model.layers[0].weight.data.half()


def transposed(model: Any) -> None:
    model.layers[0].weight.data = model.layers[0].weight.data.t()


def another_class(model: Any) -> None:
    model.layers[1] = torch.nn.Identity()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (width, r"layers\.0\.method\.width: \d+ here, 7 there"),
        (as_bool, r"layers\.0\.method\.calls: 1 here, true there"),
        (more, r'layers\.1\.method\.more: absent here, "added" there'),
        (fewer, r"layers\.1\.method\.calls: 1 here, absent there"),
        (half, r"tensor layers\.0\.weight, dtype: torch\.float32 here, torch\.float16 there"),
        (transposed, r"tensor layers\.0\.weight, strides: "),
        (another_class, r"layers\.1: .*Layer here, .*Identity there"),
    ],
)
def test_the_first_difference_is_named(
    first: gpuwm.Mapping, change: Callable[[Any], None], said: str
) -> None:
    found = _compare.difference(first, published(change))
    assert found is not None
    assert re.match(said, found), found


def test_values_that_may_differ(first: gpuwm.Mapping) -> None:
    assert _compare.difference(first, published(width), {"width"}) is None


def test_a_version_that_is_no_image(first: gpuwm.Mapping) -> None:
    plain = gpuwm.publish({"w": torch.zeros(4)}, "plain@v1", bind=False)
    with gpuwm.attach(plain.id) as other, pytest.raises(gpuwm.Invalid, match="is no module image"):
        _compare.difference(first, other)
