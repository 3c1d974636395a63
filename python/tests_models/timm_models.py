"""Every model of timm."""

from __future__ import annotations

# isort: off
from . import environment  # noqa: F401  (first: timm imports torchvision)

# isort: on
import contextlib
import dataclasses
import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import timm
import torch
from timm.models._builder import build_model_with_cfg
from torch import nn

from . import shrink
from .recipes import Inputs, Library, Recipe

CLASSES = 16
SIDES = (96, 224)  # of images, for models that take any
AS_IT_IS_AFTER = 4  # rules
DIVISORS = (8, 4, 2)  # of layers, where no rule makes the model small
# Rules for models whose functions give layers to the class.
WITHIN = tuple(
    dataclasses.replace(shrink.FIRST, divide=divide, images=images)
    for images in (True, False)
    for divide in (16, 8)
)
# Parameters of timm's builder that are not the model's.
BUILDER = frozenset(inspect.signature(build_model_with_cfg).parameters) - {"kwargs"}


@dataclasses.dataclass(frozen=True)
class Named:
    """timm's name, with smaller arguments for the class of the model if there is a rule."""

    name: str
    by: shrink.Rule | None

    @property
    def rule(self) -> str:
        return str(self.by or "as it is")

    def make(self) -> nn.Module:
        with _builder(functools.partial(_build, self.by)):
            model: nn.Module = timm.create_model(self.name)
        return model


@dataclasses.dataclass(frozen=True)
class Narrow:
    """timm's name, where the widths are written into the code and no argument changes them: every
    layer is made narrower."""

    name: str
    by: int

    @property
    def rule(self) -> str:
        return f"widths of layers/{self.by}"

    def make(self) -> nn.Module:
        with _narrow_layers(self.by):
            model: nn.Module = timm.create_model(self.name)
        return model


@dataclasses.dataclass(frozen=True)
class NarrowWithin:
    """timm's name, where its function makes layers of its own, and gives them to the class: these
    become narrower by as much as the rule divides the arguments of the class."""

    name: str
    by: shrink.Rule

    @property
    def rule(self) -> str:
        return f"{self.by}, widths of given layers/{self.by.divide}"

    def make(self) -> nn.Module:
        constructors = _constructors()

        def build(*given: Any, **named: Any) -> nn.Module:
            with _constructed_by(constructors):
                return _build(self.by, *given, **named)

        with _narrow_layers(self.by.divide), _builder(build):
            model: nn.Module = timm.create_model(self.name)
        return model


# The parameters of constructors that are widths, by their places after `self`.
WIDTHS: dict[Any, dict[str, int]] = {
    nn.Conv2d: {"in_channels": 0, "out_channels": 1, "groups": 6},
    nn.Linear: {"in_features": 0, "out_features": 1},
    nn.BatchNorm2d: {"num_features": 0},
    nn.GroupNorm: {"num_groups": 0, "num_channels": 1},
    nn.LayerNorm: {"normalized_shape": 0},
}


def _constructors() -> dict[Any, Any]:
    return {kind: kind.__init__ for kind in WIDTHS}


@contextlib.contextmanager
def _constructed_by(constructors: dict[Any, Any]) -> Iterator[None]:
    before = _constructors()
    for kind, constructor in constructors.items():
        kind.__init__ = constructor
    try:
        yield
    finally:
        for kind, constructor in before.items():
            kind.__init__ = constructor


def _narrow_layers(by: int) -> contextlib.AbstractContextManager[None]:
    """Divides each width that is a multiple of the number."""
    return _constructed_by(
        {
            kind: functools.partialmethod(_narrower, kind.__init__, places, by)
            for kind, places in WIDTHS.items()
        }
    )


def _narrower(
    module: nn.Module, make: Any, places: dict[str, int], by: int, *given: Any, **named: Any
) -> None:
    values = list(given)
    for name, place in places.items():
        if name in named:
            named[name] = _divided(named[name], by)
        elif place < len(values):
            values[place] = _divided(values[place], by)
    make(module, *values, **named)


def _divided(value: Any, by: int) -> Any:
    return value // by if isinstance(value, int) and value % by == 0 else value


def names() -> list[str]:
    return sorted(timm.list_models())


def one_of_each_file() -> list[str]:
    """The first name of each of timm's files; those that are meant for tests go first."""
    files = defaultdict(list)
    for name in names():
        files[timm.models.model_entrypoint(name).__module__].append(name)
    return sorted(
        min(each, key=lambda name: not name.startswith("test_")) for each in files.values()
    )


def recipes(name: str) -> Iterator[Recipe]:
    """By every rule that is new to the model's arguments, as it is, with narrow layers where the
    class is given some, and with narrow layers everywhere."""
    seen: set[str] = set()
    as_it_is: list[Recipe] = [Named(name, None), *(NarrowWithin(name, by) for by in WITHIN)]
    for rule in shrink.RULES:
        if rule.vocabulary and not rule.filled:  # these models have no vocabulary
            changed = repr(smaller_arguments(name, rule))
            if changed not in seen:
                seen.add(changed)
                yield Named(name, rule)
                if len(seen) == AS_IT_IS_AFTER:
                    yield from as_it_is
    if len(seen) < AS_IT_IS_AFTER:
        yield from as_it_is
    yield from (Narrow(name, by) for by in DIVISORS)


class _Enough(Exception):
    """The arguments are known: no model is needed."""


def smaller_arguments(name: str, rule: shrink.Rule) -> dict[str, Any]:
    """What the rule makes of the arguments of the model's class."""
    found: dict[str, Any] = {}

    def note(kind: Any, _variant: str, _pretrained: bool, **given: Any) -> None:
        found.update(_smaller(rule, kind, given))
        raise _Enough

    with _builder(note), contextlib.suppress(_Enough):
        timm.create_model(name)
    return found


@contextlib.contextmanager
def _builder(build: Any) -> Iterator[None]:
    """timm's functions of models call `build` instead of timm's builder."""
    files = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("timm.models.") and "build_model_with_cfg" in vars(module)
    ]
    before = [vars(file)["build_model_with_cfg"] for file in files]
    for file in files:
        vars(file)["build_model_with_cfg"] = build
    try:
        yield
    finally:
        for file, builder in zip(files, before, strict=True):
            vars(file)["build_model_with_cfg"] = builder


def _build(
    rule: shrink.Rule | None, kind: Any, variant: str, pretrained: bool, **given: Any
) -> nn.Module:
    smaller = _smaller(rule, kind, given) if rule else {}
    model: nn.Module = build_model_with_cfg(kind, variant, pretrained, **{**given, **smaller})
    return model


def _smaller(rule: shrink.Rule, kind: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the rule changes, and of those that the class has a default for:
    numbers, lists of them, and configurations."""
    parameters = inspect.signature(kind).parameters
    defaults = {
        name: each.default
        for name, each in parameters.items()
        if isinstance(each.default, (int, list, tuple))
    }
    arguments = {name: each for name, each in given.items() if name not in BUILDER}
    if given.get("model_cfg") is not None:
        arguments["model_cfg"] = given["model_cfg"]
    before = {**defaults, **arguments}
    after = shrink.smaller(before, rule)
    if "num_classes" in before:
        after["num_classes"] = CLASSES
    return {name: each for name, each in after.items() if each != before[name]}


def inputs(model: nn.Module) -> Iterator[Inputs]:
    """A small image, and one of the size that timm has for the model."""
    config: Any = getattr(model, "default_cfg", {})
    channels, *size = config.get("input_size", (3, SIDES[-1], SIDES[-1]))
    if not config.get("fixed_input_size"):
        for side in SIDES:
            yield {"x": torch.randn(1, channels, side, side)}
    yield {"x": torch.randn(1, channels, *size)}
    for part in model.modules():  # whose embeddings know the size of the image
        sides = getattr(part, "img_size", None)
        if isinstance(sides, tuple):
            yield {"x": torch.randn(1, channels, *sides)}
            return


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield "", model


LIBRARY = Library(names, recipes, inputs, parts, timm.__version__, one_of_each_file)
