"""Mapping.switch of models whose parameters hold tensors, as scales hang on what is quantised.

Reported in public: bitsandbytes-foundation/bitsandbytes issue 1946 (new bytes under the state of
the old ones: nothing fails, and the answers are wrong)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from conftest import on_host
from test_bind_described import Buffered, Quantised, State, X

import gpuwm
import gpuwm.image

pytestmark = [on_host, pytest.mark.usefixtures("daemon")]
tags = itertools.count(1)


def published(name: str, seed: int) -> str:
    """With the names that bitsandbytes saves."""
    made = Quantised(seed)
    state = made.weight.quant_state
    assert state is not None
    tensors = {
        "weight": made.weight.data,
        "weight.absmax": state.absmax,
        "weight.quant_map": state.nested["code"],
    }
    return str(gpuwm.publish(tensors, f"{name}@v{seed}", bind=False))


def state_of(mapping: gpuwm.Mapping) -> State:
    return State(mapping.torch("weight.absmax"), mapping.torch("weight.quant_map"))


def test_scales_of_the_old_bytes_are_refused_by_name() -> None:
    """`bind` accepts them, since they are those of the bytes that are bound. The remedies are
    followed."""
    name = f"described.{next(tags)}"
    first, second = published(name, 1), published(name, 2)
    mapping, model = gpuwm.attach(first), Quantised(1)
    mapping.bind(model, strict=False)
    state = model.weight.quant_state
    with pytest.raises(gpuwm.Mismatch, match=r"weight holds weight\.quant_state\.absmax") as caught:
        mapping.switch(second)
    assert "mapping.torch(n)" in str(caught.value)
    assert model.weight.quant_state is state
    assert torch.equal(model(X), Quantised(1)(X))
    model.weight.quant_state = state_of(mapping)
    for ref, seed in ((second, 2), (first, 1), (second, 2)):
        mapping.switch(ref)
        assert torch.equal(model(X), Quantised(seed)(X))
    model.weight.quant_state = state
    mapping.switch(first, stale=["weight"])  # these are its own
    assert torch.equal(model(X), Quantised(1)(X))


def test_an_exchange_looks_at_them_too() -> None:
    name = f"described.{next(tags)}"
    mapping, model = gpuwm.attach(published(name, 1)), Quantised(1)
    mapping.bind(model, strict=False)
    with gpuwm.attach(published(name, 2)) as other, pytest.raises(gpuwm.Mismatch, match="holds"):
        mapping.exchange(other, check=True)


def test_buffers_that_hang_there_go_along() -> None:
    name = f"described.{next(tags)}"
    first, second = (
        str(gpuwm.publish(dict(Buffered(seed).state_dict()), f"{name}@v{seed}", bind=False))
        for seed in (1, 2)
    )
    mapping, model = gpuwm.attach(first), Buffered(1)
    mapping.bind(model)
    mapping.switch(second)
    assert torch.equal(model(X), Buffered(2)(X))


def test_what_an_image_hung_there_goes_along() -> None:
    name = f"described.{next(tags)}"
    for seed in (1, 2):
        gpuwm.image.publish(Quantised(seed), f"{name}@v{seed}")
    model: Any = Quantised(3)
    mapping = gpuwm.image.install(model, f"{name}@v1").mapping
    assert torch.equal(model(X), Quantised(1)(X))
    mapping.switch(f"{name}@v2")
    assert torch.equal(model(X), Quantised(2)(X))
