"""What an image does not carry: tensors on classes, and what is in objects that it only names.
Nothing of it differs in silence."""

from __future__ import annotations

import ctypes
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy
import pytest
import torch
from conftest import by_torch
from image_models import Holder, numbers
from torch import nn

import gpuwm
import gpuwm.image

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]
tags = itertools.count(1)


class Mixed:
    """A base that is no module, and whose tensors are modules' all the same."""

    offsets: ClassVar[dict[str, Any]] = {}


class Scaled(nn.Module, Mixed):
    scale = torch.ones(2)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbers(2), requires_grad=False)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scaled()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    Scaled.scale = torch.ones(2)
    Mixed.offsets = {}


def published(model: nn.Module, **options: Any) -> str:
    return str(gpuwm.image.publish(model, f"uncarried@v{next(tags)}", **options).version)


def other_scale() -> None:
    Scaled.scale = torch.zeros(2)


def other_dtype() -> None:
    Scaled.scale = torch.ones(2, dtype=torch.float64)


def no_scale() -> None:
    Scaled.scale = None  # type: ignore[assignment]


def in_a_dict_of_a_base() -> None:
    Mixed.offsets = {"near": [numbers(3)]}


CHANGES = {
    other_scale: "class: test_image_uncarried.Scaled.scale: float32 [2]",
    other_dtype: "Scaled.scale: float32 [2] [0-9a-f]+ in the version, float64 [2]",
    no_scale: "in the version, no tensor here",
    in_a_dict_of_a_base: r"Mixed.offsets\['near'\]\[0\]: no tensor in the version, float32 [3]",
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_tensor_on_a_class_is_refused(change: Callable[[], None]) -> None:
    name, fresh = published(Outer()), Outer()
    before = gpuwm.image.describe(fresh)
    change()
    text = CHANGES[change].replace("[2]", r"\[2\]").replace("[3]", r"\[3\]")
    with pytest.raises(gpuwm.BindError, match=text) as raised:
        gpuwm.image.install(fresh, name)
    for remedy in ("buffer", "ignored="):
        assert remedy in str(raised.value)
    assert gpuwm.image.differences(before, fresh)  # it tells, too


def test_equal_tensors_on_classes_are_fine() -> None:
    Mixed.offsets = {"near": [numbers(3)]}
    name = published(Outer())
    Mixed.offsets = {"near": [numbers(3)]}
    fresh = Outer()
    gpuwm.image.install(fresh, name)
    assert gpuwm.mapping_of(fresh)


@pytest.mark.parametrize("options", [{"ignored": ["*.scale"]}, {}], ids=["ignored", "hidden"])
def test_what_no_module_reads_may_differ(options: dict[str, Any]) -> None:
    def made() -> Outer:
        model = Outer()
        if not options:
            model.inner.scale = numbers(2)
        return model

    name = published(made(), **options)
    other_scale()
    gpuwm.image.install(made(), name)


# ---- objects that have only a name -------------------------------------------------------------


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def traced(function: Callable[[Any], Any]) -> Any:
    return torch.fx.Tracer().trace(nn.Sequential(*[nn.ReLU()] * function(1)))


def more(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def less(x: torch.Tensor) -> torch.Tensor:
    return x - 1


def scripted(function: Callable[[Any], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


def kernel(function: Callable[[Any], Any]) -> Any:
    """As triton's, which is not installed here."""
    return type("JITFunction", (), {"__module__": "triton.runtime.jit", "fn": function})()


def made(factor: int) -> Callable[[int], int]:
    if factor > 1:

        def act(x: int) -> int:
            return x * 2
    else:

        def act(x: int) -> int:
            return x

    return act


OBJECTS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "pattern": (lambda: re.compile("a+"), lambda: re.compile("b+"), 'held.pattern: "a'),
    "flags": (lambda: re.compile("a"), lambda: re.compile("a", re.DOTALL), "held.flags: "),
    "seed": (lambda: seeded(1), lambda: seeded(2), "held.seed: 1 in the version, 2 here"),
    "numpy's seed": (
        lambda: numpy.random.default_rng(1),
        lambda: numpy.random.default_rng(2),
        "held.seed: 1 in the version, 2 here",
    ),
    "function of numpy": (lambda: numpy.tanh, lambda: numpy.exp, 'held: "tanh" in'),
    "operator": (
        lambda: torch.ops.aten.relu.default,
        lambda: torch.ops.aten.silu.default,
        'held: "aten.relu.default" in',
    ),
    "lambda": (lambda: [lambda x: x + 1][0], lambda: [lambda x: x - 1][0], "held: "),
    "lambda with a default": (
        lambda: [lambda x, y=1: x + y][0],
        lambda: [lambda x, y=1: x - y][0],
        "held: ",
    ),
    "lambda with a set": (
        lambda: [lambda x: x in {"a", "b"}][0],
        lambda: [lambda x: x in {"a", "c"}][0],
        "held: ",
    ),
    "function in a function": (lambda: made(1), lambda: made(2), "held: "),
    "scripted": (lambda: scripted(more), lambda: scripted(less), "held: "),
    "kernel": (lambda: kernel(more), lambda: kernel(less), 'uncarried.more" in the version'),
    "number of C": (lambda: ctypes.c_int(1), lambda: ctypes.c_int(2), "held: 1 in the version, 2"),
    "graph": (lambda: traced(lambda x: x), lambda: traced(lambda x: x + 1), "held: "),
}


def holding(value: Any) -> Holder:
    return Holder(weight=nn.Parameter(numbers(2), requires_grad=False), held=value)


@pytest.mark.parametrize("name", OBJECTS)
def test_other_content_of_an_object_that_is_only_named_is_told(name: str) -> None:
    one, other, text = OBJECTS[name]
    version = published(holding(one()))
    gpuwm.image.install(holding(one()), version)  # no warning
    fresh = holding(other())
    with pytest.warns(RuntimeWarning, match=re.escape(text)) as told:
        gpuwm.image.install(fresh, version)
    assert told[0].filename == __file__
    assert gpuwm.mapping_of(fresh)
    quiet = published(holding(one()), ignored=["held"])
    gpuwm.image.install(holding(other()), quiet)


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    version = published(holding(re.compile("a")))
    fresh = holding(re.compile("b"))
    with pytest.raises(RuntimeWarning, match="pattern"):  # as pytest is set up here
        gpuwm.image.install(fresh, version)
    with pytest.raises(gpuwm.Invalid, match="nothing of the Holder lies in a version"):
        gpuwm.mapping_of(fresh)


def test_what_was_read_from_other_files_is_no_difference() -> None:
    transformers = pytest.importorskip("transformers")

    def configured(eps: float, path: str) -> Holder:
        config = transformers.LlamaConfig(rms_norm_eps=eps, name_or_path=path)
        return holding([config, config])

    version = published(configured(1e-6, "a"))
    gpuwm.image.install(configured(1e-6, "b"), version)
    with pytest.warns(RuntimeWarning, match=r"held\[0\]\.rms_norm_eps: 1e-06 in .*, 1e-05 here"):
        gpuwm.image.install(configured(1e-5, "b"), version)
