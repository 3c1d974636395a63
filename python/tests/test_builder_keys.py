"""What a call of a builder is called."""

from __future__ import annotations

import dataclasses
import enum
import fractions
import functools
import itertools
import pathlib
import re
from typing import Any

import numpy
import pytest
import torch
from conftest import by_torch, run_python
from torch import nn

import gpuwm
from gpuwm.builders.keys import Keying, code_digest, is_tag, model_of, slug

pytestmark = by_torch


def make(size: Any = 4, *rest: Any, kind: Any = "a", **more: Any) -> None:
    """Whatever it is called with."""


def tag(*args: Any, template: str | None = None, **kwargs: Any) -> str:
    return Keying(make, template, False).of(args, kwargs).tag


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Config:
    hidden: int
    layers: Any = ()


def named() -> None:
    """A function that has a name."""


VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, float("nan"), float("inf"), 1 << 70, 1 << 71),
    *("", "1", "a", "True", "\ud800", b"", b"a", 1j, (), [], {}, (1,), [1], [[1]], ((1,),)),
    *({"a": 1}, {"a": 2}, {1: 1}, {"1": 1}, {"dict": 1}, set(), {1}, frozenset({1, 2})),
    *(torch.float16, torch.bfloat16, torch.Size([1]), torch.device("cpu"), Colour.RED, Colour.BLUE),
    *(pathlib.Path("/a"), pathlib.Path("a"), Config(1), Config(2), Config(1, [2]), Config, Colour),
    *(named, make, torch.relu, nn.Linear, nn.functional.relu),
]


def test_different_arguments_never_have_the_same_key() -> None:
    tags = [tag(value) for value in VALUES]
    same = [(a, b) for a, b in itertools.combinations(range(len(tags)), 2) if tags[a] == tags[b]]
    assert [(VALUES[a], VALUES[b]) for a, b in same] == []
    assert all(re.fullmatch(r"size-[A-Za-z0-9_.-]*-[0-9a-f]{32}", each) for each in tags)
    assert all(len(each) <= 128 for each in tags)


def test_equal_arguments_have_the_same_key() -> None:
    for value in VALUES:
        assert tag(value) == tag(value)
    assert tag() == tag(4) == tag(size=4) == tag(4, kind="a")
    assert tag({"a": 1, "b": 2}) == tag({"b": 2, "a": 1})
    assert tag({3, 1, 2}) == tag({1, 2, 3})
    assert tag(1, 2) != tag((1, 2)) != tag([1, 2])
    assert tag(more=1) != tag(kind="a", other=1)


def test_numbers_of_numpy_are_numbers() -> None:
    assert tag(numpy.int64(4)) == tag(numpy.uint8(4)) == tag(4)
    assert tag(numpy.float64(0.5)) == tag(numpy.float32(0.5)) == tag(0.5)
    assert tag(numpy.float32("nan")) == tag(float("nan"))
    assert tag(numpy.float32(0.1)) != tag(0.1)


def test_a_person_reads_what_it_is() -> None:
    assert re.fullmatch(r"size-8-rest-kind-wide-more-[0-9a-f]{32}", tag(8, kind="wide"))
    assert re.fullmatch(r"all-[0-9a-f]{32}", Keying(lambda: None, None, False).of((), {}).tag)
    long = tag("x" * 500)
    assert re.fullmatch(r"size-x{59}-[0-9a-f]{32}", long)


def test_large_arguments() -> None:
    ten = bytes(10 << 20)
    assert tag(ten) != tag(ten + b"x")
    assert tag("y" * (10 << 20)) != tag("y" * (10 << 20) + "y")
    assert len(tag(list(range(1 << 18)))) < 128


class Foreign:
    pass


def holds_itself() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Foreign(), r"argument size of make can't .* is of the type test_builder_keys\.Foreign"),
        ({"a": [1, Foreign()]}, r"argument size\['a'\]\[1\] of make can't .* is of"),
        (Config(1, (Foreign(),)), r"argument size\.layers\[0\] of make can't .* is of"),
        (lambda: 1, r"is the function <lambda>, which has no name"),
        (type("Local", (), {"__qualname__": "f.<locals>.Local"}), r"the local class f\.<locals>"),
        (torch.ones(1), r"a tensor that lies in no version \(gpuwm\.share makes it one\)"),
        (fractions.Fraction(1, 3), r"is of the type fractions\.Fraction"),
        (nn.Linear(1, 1), r"is of the type torch\.nn\.modules\.linear\.Linear"),
        (functools.partial(make), r"is of the type functools\.partial"),
        (holds_itself(), r"argument size of make can't .* is nested without an end"),
        (object(), r"is of the type object"),
    ],
)
def test_what_can_t_be_part_of_a_key_is_named(value: Any, said: str) -> None:
    with pytest.raises(gpuwm.Invalid, match=said) as error:
        tag(value)
    assert "key='" in error.value.detail


def test_the_key_is_a_part_of_the_arguments() -> None:
    assert tag(8, template="h{size}") == "h8"
    assert tag(Config(3), template="h{size.hidden}.{kind}") == "h3.a"
    assert tag({"a": 5}, template="{size[a]}") == "5"
    assert tag(8, template="fixed") == tag(9, template="fixed") == "fixed"
    assert re.fullmatch(r"model-8-[0-9a-f]{32}", tag(8, template="model:{size}"))
    assert tag(8, template="model:{size}") != tag(8, template="model/{size}")
    assert tag(8, template="current") != "current"
    assert tag("f" * 32, template="{size}") != "f" * 32
    assert re.fullmatch(r"key-[0-9a-f]{32}", tag("", template="{size}"))
    assert tag(torch.float16, template="{size}") == "torch.float16"


@pytest.mark.parametrize("template", ["{unheard}", "{0}", "{}", "{size", "{unheard.x}"])
def test_a_key_that_names_no_parameter(template: str) -> None:
    with pytest.raises(gpuwm.Invalid, match="key="):
        Keying(make, template, False)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{size}", r"'size' of this call of make is a Foreign, which has no text of its own"),
        ("{size.hidden}", r"the argument has no 'size\.hidden'"),
        ("{size[0]}", r"which has no text|the argument has no|not subscriptable"),
    ],
)
def test_a_part_that_has_no_text(template: str, said: str) -> None:
    with pytest.raises((gpuwm.Invalid, TypeError), match=said):
        tag(Foreign(), template=template)


def test_wrong_calls_are_python_s_errors() -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        Keying(Config, None, False).of((), {})


def test_the_function_s_own_code() -> None:
    def one(x: int) -> int:
        return x + 1

    def other(x: int) -> int:
        # a comment
        return x + 1

    def changed(x: int) -> int:
        return x + 2

    def inner(x: int) -> Any:
        return lambda: x + 1

    def inner_changed(x: int) -> Any:
        return lambda: x + 2

    assert code_digest(one.__code__) == code_digest(other.__code__)
    assert len({code_digest(f.__code__) for f in (one, changed, inner, inner_changed)}) == 4
    keys = [Keying(f, "same", True).of((1,), {}) for f in (one, changed)]
    assert keys[0].tag != keys[1].tag
    assert all(re.fullmatch(r"same-[0-9a-f]{32}", key.tag) for key in keys)


def test_the_code_of_a_function_is_the_same_in_every_process() -> None:
    program = (
        "from gpuwm.builders.keys import code_digest\n"
        "def f(x): return x in {'a', 'b', 'c', 'd', 'e'}\n"
        "print(code_digest(f.__code__))"
    )
    assert len({run_python(program) for _ in range(3)}) == 1


def test_slugs() -> None:
    assert slug("a:b c/d..e.") == "a-b-c-d-e"
    assert not is_tag("")
    assert not is_tag("a:b")


def test_the_model_is_the_function_s_module_and_name() -> None:
    assert model_of(make) == "test_builder_keys.make"
    with pytest.raises(gpuwm.Invalid, match="has no name by which"):
        model_of(lambda: None)


_count = itertools.count()


def test_shared_tensors_count_by_reference(daemon: Any) -> None:
    tensor = gpuwm.share(torch.arange(10.0))
    mapping = gpuwm.publish({"a": torch.ones(1)}, f"keyed@v{next(_count)}")
    keys = [tag(tensor), tag(tensor[2:]), tag(tensor.view(2, 5)), tag(mapping), tag(mapping["a"])]
    assert len(set(keys)) == 5
    assert tag(tensor) == tag(gpuwm.ref(tensor)) == tag(gpuwm.ref(tensor).torch())
    assert tag(mapping) == tag(gpuwm.attach(str(mapping.version)))
