"""Mapping.bind of parameters on which tensors hang, as scales hang on what is quantised."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from binding_models import Version
from torch import nn

import gpuwm
from gpuwm._torch import bind, init

X = torch.ones(1, 4)


class State:
    """As bitsandbytes' QuantState: what it takes to read packed bytes."""

    def __init__(self, absmax: torch.Tensor, code: torch.Tensor) -> None:
        self.absmax, self.nested = absmax, {"code": code}


class Packed(nn.Parameter):
    __slots__ = ("note",)
    note: str
    quant_state: State | None


class Quantised(nn.Module):
    """A layer of 4-bit codes, two in a byte."""

    weight: Packed

    def __init__(self, seed: int) -> None:
        super().__init__()
        values = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        absmax, code = values.abs().max().reshape(1), torch.linspace(-1, 1, 16)
        nearest = (values.reshape(-1, 1) / absmax - code).abs().argmin(1)
        packed = (nearest[::2] * 16 + nearest[1::2]).to(torch.uint8).reshape(-1, 1)
        self.weight = Packed(packed, requires_grad=False)
        self.weight.quant_state = State(absmax, code)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.weight.quant_state
        assert state is not None
        codes = torch.stack((self.weight // 16, self.weight % 16), 1).reshape(-1).long()
        return x @ (state.nested["code"][codes] * state.absmax).reshape(4, 4).t()


def version_of(layer: Quantised, **changed: torch.Tensor) -> Any:
    """A version with the names that bitsandbytes saves."""
    state = layer.weight.quant_state
    assert state is not None
    tensors = {"": layer.weight, ".absmax": state.absmax, ".quant_map": state.nested["code"]}
    return Version({f"weight{n}": changed.get(n, t).detach().clone() for n, t in tensors.items()})


def restored(version: Any) -> State:
    return State(version.tensors["weight.absmax"], version.tensors["weight.quant_map"])


@pytest.mark.parametrize("empty", [False, True])
def test_a_state_that_describes_other_bytes_is_refused_by_name(empty: bool) -> None:
    """torch's own load_state_dict(strict=False) keeps the state of the bytes that it overwrites
    (bitsandbytes-foundation/bitsandbytes issue 1946). The remedy is followed."""
    made = Quantised(1)
    version, want = version_of(made), made(X)
    if empty:
        with init.empty_init():
            model = Quantised(2)
    else:
        model = Quantised(2)
    state = model.weight.quant_state
    with pytest.raises(bind.BindError) as caught:
        bind.bind(version, model, strict=False)
    problem = caught.value.problems[0]
    assert "weight.quant_state.absmax" in problem
    assert "weight.quant_state.nested['code']" in problem
    assert "parameter.attribute = None" in str(caught.value)
    assert model.weight.quant_state is state
    assert model.weight.is_meta == empty
    model.weight.quant_state = None
    result = bind.bind(version, model, strict=False)
    assert result.unexpected == ("weight.absmax", "weight.quant_map")
    model.weight.quant_state = restored(version)
    assert torch.equal(model(X), want)
    assert model.weight.data_ptr() == version.tensors["weight"].data_ptr()


def test_parts_of_a_parameter_are_no_names_to_pass_over() -> None:
    """A layer that gets packed bytes without their state can't compute (unslothai/unsloth-zoo pull
    request 1132). The remedy is followed."""
    made = Quantised(1)
    version, model = version_of(made), Quantised(2)
    model.weight = Packed(torch.empty(0, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(bind.BindError, match="make of them what belongs on") as caught:
        bind.bind(version, model)
    assert caught.value.problems == (
        "parts: the version has tensors below weight, which bind gives to nothing",
    )
    bind.bind(version, model, strict=False)
    model.weight.quant_state = restored(version)
    assert torch.equal(model(X), made(X))


def test_a_state_that_describes_these_bytes_is_kept() -> None:
    version, model = version_of(Quantised(1)), Quantised(1)
    state, want = model.weight.quant_state, model(X)
    assert bind.bind(version, model, strict=False).shared == ("weight",)
    assert model.weight.quant_state is state
    assert model.weight.data_ptr() == version.tensors["weight"].data_ptr()
    assert torch.equal(model(X), want)


def test_equal_bytes_with_other_scales_are_refused() -> None:
    version = version_of(Quantised(1), **{".absmax": torch.tensor([9.0])})
    with pytest.raises(bind.BindError, match="described: weight holds weight.quant_state"):
        bind.bind(version, Quantised(1), strict=False)
    without: Any = Version({"weight": version.tensors["weight"]})
    model = Quantised(1)
    bind.bind(without, model)  # the version says nothing about scales
    assert torch.equal(model(X), Quantised(1)(X))


@pytest.mark.parametrize("options", [{"private": ["weight"]}, {}])
def test_buffers_and_copies_are_described_too(options: Any) -> None:
    class WithBuffer(nn.Module):
        codes: Any

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))
            self.register_buffer("codes", torch.zeros(4))
            self.codes.scale = torch.ones(1)

    version: Any = Version({"weight": torch.ones(1), "codes": torch.ones(4)})
    with pytest.raises(bind.BindError, match=r"described: codes holds codes\.scale"):
        bind.bind(version, WithBuffer(), **options)


class Buffered(nn.Module):
    """The other remedy: the scales are buffers, and what hangs on the parameter refers to them."""

    weight: Packed
    absmax: torch.Tensor
    code: torch.Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        made = Quantised(seed)
        state = made.weight.quant_state
        assert state is not None
        self.weight = Packed(made.weight.data, requires_grad=False)
        self.register_buffer("absmax", state.absmax)
        self.register_buffer("code", state.nested["code"])
        self.weight.quant_state = State(self.absmax, self.code)

    forward = Quantised.forward


@pytest.mark.parametrize("share_buffers", [False, True])
def test_what_hangs_there_and_is_bound_itself_is_no_obstacle(share_buffers: bool) -> None:
    made, model = Buffered(1), Buffered(2)
    version: Any = Version({name: tensor.clone() for name, tensor in made.state_dict().items()})
    bind.bind(version, model, share_buffers=share_buffers)
    assert torch.equal(model(X), made(X))
    assert model.weight.quant_state is not None
    assert model.weight.quant_state.absmax is model.absmax


def test_attributes_without_tensors_stay() -> None:
    def loader(scale: torch.Tensor) -> None: ...

    model = Quantised(2)
    attributes = {
        "output_dim": 1,
        "names": ["a"],
        "weight_loader": functools.partial(loader, torch.ones(1)),
        "quant_state": None,
    }
    for name, value in attributes.items():
        setattr(model.weight, name, value)
    model.weight.note = "mine"
    version: Any = Version({"weight": torch.ones(8, 1, dtype=torch.uint8)})
    bind.bind(version, model)
    assert {name: getattr(model.weight, name) for name in attributes} == attributes
    assert model.weight.note == "mine"


def test_publish_names_the_path() -> None:
    with pytest.raises(gpuwm.Unsupported, match=r"quant_state\.absmax"):
        gpuwm.publish(Quantised(1), "never@v1")
