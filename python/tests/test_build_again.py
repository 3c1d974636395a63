"""gpuwm.build of models whose `__init__` needs the memory of parameters: they are made again, and a
warning says so."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from binding_models import within
from conftest import DEVICE, by_torch, on_host, run_python
from torch import nn

import gpuwm
import gpuwm.builders

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]


class Base(nn.Module):
    early: Any

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 4)
        nn.init.ones_(self.hidden.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.hidden(x) + self.early
        return made


class Mask(Base):
    """As timm's Swin: a mask on the parameters' device, which state_dict() leaves out
    (huggingface/pytorch-image-models pull request 2350)."""

    def __init__(self) -> None:
        super().__init__()
        mask = torch.arange(4.0, device=self.hidden.weight.device)
        self.register_buffer("early", mask, persistent=False)


class Masks(Base):
    """The same in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.masks = {"all": [torch.arange(4.0, device=self.hidden.weight.device)]}

    @property
    def early(self) -> torch.Tensor:
        return self.masks["all"][0].to(self.hidden.weight.device)


class Moved(Base):
    """As sentence-transformers, whose `__init__` calls to(device)
    (vectorize-io/hindsight pull request 185)."""

    def __init__(self) -> None:
        super().__init__()
        self.early = 1
        self.to("cpu")


class Asked(Base):
    """As InternVL2's own code asks for numbers (huggingface/transformers issue 45092)."""

    def __init__(self) -> None:
        super().__init__()
        self.early = self.hidden.bias.sum().item()


class Multiplied(Base):
    """torch multiplies with a tensor on `meta` without an error, and the product is garbage: models
    that "don't crash but are producing garbage outputs" (the pull request that Mask names)."""

    def __init__(self) -> None:
        super().__init__()
        product = torch.eye(4) @ self.hidden.bias.detach().reshape(4, 1)
        self.register_buffer("early", product.reshape(4), persistent=False)


class Remembered(Base):
    """It asks for the device once, and makes tensors there."""

    def __init__(self) -> None:
        super().__init__()
        self.device = self.hidden.weight.device

    @property
    def early(self) -> torch.Tensor:
        return torch.arange(4.0, device=self.device).to(self.hidden.weight.device)


class Decided(Base):
    """It computes otherwise on a GPU: everything that is not one counts as one here."""

    def __init__(self) -> None:
        super().__init__()
        self.early = 1 if self.hidden.weight.device.type == "cpu" else 2


class Compared(Base):
    def __init__(self) -> None:
        super().__init__()
        self.early = 1 + (torch.device("cpu") != self.hidden.weight.device)


class OnCpu(Base):
    def __init__(self) -> None:
        super().__init__()
        self.early = 1 if self.hidden.weight.is_cpu else 2


class Held(Base):
    """Something has a weak reference to the parameter, so that it must stay the same object."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.reference = 1, weakref.ref(self.hidden.weight)


KINDS = (Mask, Masks, Moved, Asked, Multiplied, Remembered, pytest.param(Held, marks=on_host))
DECIDE = (Decided, Compared, OnCpu)  # empty_init alone lets them


def published(kind: type[Base], name: str) -> tuple[Base, torch.Tensor]:
    model = kind()
    nn.init.normal_(model.hidden.weight)
    model.to(DEVICE)
    x = torch.ones(4, device=DEVICE)
    gpuwm.publish(model, name, bind=False)
    return model, model(x)


@pytest.mark.parametrize("kind", [*KINDS, *DECIDE])
def test_it_is_made_again_and_bound(kind: type[Base]) -> None:
    name = f"again-{kind.__name__}@v1"
    _, want = published(kind, name)
    calls: list[int] = []

    def make() -> Base:
        calls.append(1)
        return kind()

    with pytest.warns(UserWarning, match="made again, with memory") as told:
        built: Any = gpuwm.build(name, make)
    assert [warning.filename for warning in told] == [__file__]
    assert len(calls) == 2
    assert torch.equal(built(torch.ones(4, device=DEVICE)), want)
    mapping = gpuwm.attach(name)
    assert set(mapping.check(built).shared) == {"hidden.weight", "hidden.bias"}


@pytest.mark.parametrize("kind", [Mask, Moved])
def test_the_remedy_of_bind_and_of_empty_init(kind: type[Base]) -> None:
    name = f"remedy-{kind.__name__}@v1"
    _, want = published(kind, name)
    mapping = gpuwm.attach(name)

    def empty() -> None:
        with gpuwm.empty_init():
            model = kind()
        mapping.bind(model)

    with pytest.raises((gpuwm.BindError, gpuwm.Unsupported), match="outside of empty_init"):
        empty()
    model = kind().to(DEVICE)
    mapping.bind(model)
    assert "hidden.weight" in within(mapping, model)
    assert torch.equal(model(torch.ones(4, device=DEVICE)), want)


def test_what_make_itself_raises_is_raised() -> None:
    name = "raises@v1"
    published(Mask, name)
    calls: list[int] = []

    def make() -> nn.Module:
        calls.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gpuwm.build(name, make)
    assert len(calls) == 1


def test_a_buffer_that_the_version_has_is_no_reason(recwarn: pytest.WarningsRecorder) -> None:
    class Saved(Base):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("early", self.hidden.bias.detach() * 2)

    name = "saved-early@v1"
    _, want = published(Saved, name)
    built: Any = gpuwm.build(name, Saved)
    assert not recwarn.list
    assert torch.equal(built(torch.ones(4, device=DEVICE)), want)


class KnowsMeta(Base):
    """As Mamba's layers of transformers, and DETR's frozen norms."""

    def __init__(self) -> None:
        super().__init__()
        self.early = 1
        if self.hidden.weight.device.type != "meta":
            nn.init.zeros_(self.hidden.weight)


class MakesThere(Base):
    def __init__(self) -> None:
        super().__init__()
        where = {"device": self.hidden.weight.device}
        self.register_buffer("early", torch.ones(4, device=self.hidden.weight.device))
        self.size = len(where)


@pytest.mark.parametrize("kind", [KnowsMeta, MakesThere])
def test_where_a_parameter_is_may_be_used(
    kind: type[Base], recwarn: pytest.WarningsRecorder
) -> None:
    name = f"used-{kind.__name__}@v1"
    _, want = published(kind, name)
    built: Any = gpuwm.build(name, kind)
    assert not recwarn.list
    assert torch.equal(built(torch.ones(4, device=DEVICE)), want)


STRUCTURE = """
import sys, warnings, torch, gpuwm.builders
from torch import nn
class Asked(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.hidden = nn.Linear(4, 4)
        self.early = self.hidden.weight.sum().item() * 0 + 1
        self.hook = self.register_forward_hook(lambda *_: None)
        if fill:
            nn.init.constant_(self.hidden.weight, 3)
    def forward(self, x):
        return self.hidden(x) * self.early
@gpuwm.builder(model="asked", structure=lambda: Asked(False), ignored=["hook"])
def build():
    return Asked(True)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    made = build()
print(int(made.hidden.weight.sum()), len([w for w in told if "made again" in str(w.message)]))
"""


def test_structure_is_made_again_too() -> None:
    assert [run_python(STRUCTURE) for _ in range(2)] == ["48 0\n", "48 1\n"]
