"""A backward pass over a switch: torch refuses it, as one over any other write."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEVICE, by_torch
from torch import nn
from torch.autograd import graph

import gpuwm
from gpuwm import _switch
from gpuwm._torch import counters

pytestmark = by_torch

Checkpoint = Callable[[Any], str]
REFUSED = "modified by an inplace operation"
# What a switch may take longer for 1,000 tensors.
SECONDS_FOR_1000 = 0.2e-3


def versions(checkpoint: Checkpoint) -> tuple[str, str]:
    first, second = (checkpoint({"weight": np.full((2, 2), n, np.float32)}) for n in (1, 2))
    return first, second


def product(weight: torch.Tensor) -> Any:
    """A computation whose gradient needs the weight."""
    return torch.ones(2, 2, device=DEVICE, requires_grad=True) @ weight


def bound(mapping: gpuwm.Mapping, **options: Any) -> nn.Linear:
    with gpuwm.empty_init():
        model = nn.Linear(2, 2, bias=False)
    mapping.bind(model, **options)
    return model


def bound_while_held(mapping: gpuwm.Mapping) -> torch.Tensor:
    model = nn.Linear(2, 2, bias=False)
    held = weakref.ref(model.weight)  # so its memory is set, and it keeps a counter of its own
    mapping.bind(model)
    assert held() is model.weight
    return model.weight


def bound_view(mapping: gpuwm.Mapping) -> torch.Tensor:
    model: Any = nn.Linear(2, 2, bias=False)
    model.rows = model.weight.data.view(2, 2)
    mapping.bind(model)
    rows: torch.Tensor = model.rows
    return rows


def private_copy(mapping: gpuwm.Mapping) -> torch.Tensor:
    model = bound(mapping, private="weight")
    weight: Any = model.weight
    weight.model = model  # a switch refreshes copies of models that live
    copy: torch.Tensor = weight
    return copy


WAYS: dict[str, Callable[[gpuwm.Mapping], torch.Tensor]] = {
    "torch": lambda mapping: mapping.torch("weight"),
    "state_dict": lambda mapping: mapping.state_dict()["weight"],
    "view": lambda mapping: mapping.torch("weight")[:, :],
    "detached": lambda mapping: mapping.torch("weight").detach(),
    "parameter": lambda mapping: nn.Parameter(mapping.torch("weight"), requires_grad=False),
    "bound": lambda mapping: bound(mapping).weight,
    "bound, unguarded": lambda mapping: bound(mapping, guard=False).weight,
    "bound while it is held": bound_while_held,
    "a view that bind moved": bound_view,
    "a private copy": private_copy,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_tensor_of_a_mapping_is_counted(checkpoint: Checkpoint, way: str) -> None:
    first, second = versions(checkpoint)
    mapping = gpuwm.attach(first)
    weight = WAYS[way](mapping)
    before = product(weight)
    mapping.switch(second)
    with pytest.raises(RuntimeError, match=REFUSED):
        before.sum().backward()
    product(weight).sum().backward()  # one that begins after it is right


def test_both_mappings_of_an_exchange_are_counted(checkpoint: Checkpoint) -> None:
    mapping, other = map(gpuwm.attach, versions(checkpoint))
    products = [product(each.torch("weight")) for each in (mapping, other)]
    mapping.exchange(other, check=True)
    torch.autograd.grad(products[0].sum(), products[0], retain_graph=True)
    mapping.exchange(other)
    for before in products:
        with pytest.raises(RuntimeError, match=REFUSED):
            before.sum().backward()


def test_a_pipeline_keeps_no_microbatch_over_a_switch(checkpoint: Checkpoint) -> None:
    """pytorch/pytorch issue 49673: pipelined training changes the weights while microbatches are
    between forward and backward, and torch's counters are what refuses the late ones."""
    first, second = versions(checkpoint)
    mapping = gpuwm.attach(first)
    model = bound(mapping)
    done, late = (product(model.weight) for _ in range(2))
    done.sum().backward()
    mapping.switch(second)
    with pytest.raises(RuntimeError, match=REFUSED):
        late.sum().backward()


def test_a_graph_that_is_kept_ends_with_a_switch(checkpoint: Checkpoint) -> None:
    """pytorch/pytorch issue 197054: a write that torch does not count lets the second pass over a
    retained graph compute silently with other values."""
    first, second = versions(checkpoint)
    mapping = gpuwm.attach(first)
    x = torch.ones(2, 2, device=DEVICE, requires_grad=True)
    y = (x @ mapping.torch("weight")).sum()
    (gradient,) = torch.autograd.grad(y, x, retain_graph=True)
    assert torch.equal(gradient, torch.full((2, 2), 2.0, device=DEVICE))
    mapping.switch(second)
    with pytest.raises(RuntimeError, match=REFUSED):
        torch.autograd.grad(y, x)


def test_tensors_of_inference_have_no_counter(checkpoint: Checkpoint) -> None:
    first, second = versions(checkpoint)
    mapping = gpuwm.attach(first)
    with torch.inference_mode():
        weight = mapping.torch("weight")
        mapping.switch(second)
        assert weight.is_inference()
        assert weight[0, 0] == 2
    mapping.switch(first)
    assert weight[0, 0] == 1


def test_one_call_counts_all_and_takes_little(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"layers.{n}.weight": np.zeros(2, np.float32) for n in range(1000)}
    first, second = checkpoint(many), checkpoint(many)
    mapping = gpuwm.attach(first)
    tensors = mapping.state_dict()
    calls: list[int] = []
    real = graph.increment_version

    def counted(found: Any) -> None:
        calls.append(len(found))
        real(found)

    monkeypatch.setattr(graph, "increment_version", counted)
    mapping.switch(second)
    assert calls == [1000]
    assert all(tensor._version == 1 for tensor in tensors.values())
    handle = mapping._held()
    took = []
    for _ in range(50):
        begin = time.perf_counter()
        counters.move([handle])
        took.append(time.perf_counter() - begin)
    assert min(took) < SECONDS_FOR_1000


def test_counters_end_with_the_memory(checkpoint: Checkpoint) -> None:
    mapping = gpuwm.attach(versions(checkpoint)[0])
    for _ in range(3):
        mapping.torch("weight")
    assert not counters._counters[mapping._held()]


def test_a_refused_switch_counts_nothing(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = gpuwm.attach(versions(checkpoint)[0])
    weight = mapping.torch("weight")
    before = product(weight)
    with pytest.raises(gpuwm.NotFound):
        mapping.switch("never-there@v1")
    monkeypatch.setattr(_switch, "_count_as_write", pytest.fail)
    before.sum().backward()
