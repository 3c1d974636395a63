"""Every model of timm."""

from __future__ import annotations

# isort: off
from . import environment  # noqa: F401  (first: timm imports torchvision)

# isort: on
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import timm
import torch
from torch import nn

from . import shrink
from .recipes import Inputs, Library


@dataclasses.dataclass(frozen=True)
class Named:
    """timm's name, with other arguments for the class of the model."""

    rule: str
    name: str
    changes: dict[str, Any]

    def make(self) -> nn.Module:
        model: nn.Module = timm.create_model(self.name, **self.changes)
        return model


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


def recipes(name: str) -> Iterator[Named]:
    given = _arguments(name)
    seen: list[Any] = []
    for rule in shrink.RULES:
        if rule.vocabulary or rule.divide == 1:
            continue  # these have no vocabulary, and are tried as they are at the end
        small = shrink.smaller(given, rule)
        changes = {key: value for key, value in small.items() if value != given[key]}
        if changes and changes not in seen:
            seen.append(changes)
            yield Named(str(rule), name, changes)
    yield Named("as it is", name, {})


def _arguments(name: str) -> dict[str, Any]:
    """What timm's function of this name gives to the model's class: numbers, and lists of them."""
    make = timm.models.model_entrypoint(name)
    file: Any = sys.modules[make.__module__]
    builder, given = file.build_model_with_cfg, {}

    class Enough(Exception):
        """The arguments are known: no model is needed."""

    def note(*_: Any, **arguments: Any) -> None:
        given.update(arguments)
        raise Enough

    file.build_model_with_cfg = note
    try:
        make(pretrained=False)
    except Enough:
        pass
    finally:
        file.build_model_with_cfg = builder
    plain = (int, list, tuple)
    return {key: value for key, value in given.items() if isinstance(value, plain)}


def inputs(model: nn.Module) -> Iterator[Inputs]:
    """An image of the size that timm has for the model."""
    config: Any = getattr(model, "default_cfg", {})
    size = config.get("input_size", (3, 224, 224))
    yield {"x": torch.randn(2, *size)}


def parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield "", model


LIBRARY = Library(names, recipes, inputs, parts, timm.__version__, one_of_each_file)
