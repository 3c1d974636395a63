"""Module images: what is published is what is installed."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from conftest import Daemon, by_torch, eventually
from image_models import IDS, Layer, Model, loaded
from torch import nn

import gpuwm
import gpuwm.image

pytestmark = by_torch


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.replace('[', '-').replace(']', '')}@v1"


def fresh() -> Any:
    with gpuwm.empty_init():
        return Model()


def test_a_published_module_computes_the_same(daemon: Daemon, name: str) -> None:
    model = loaded()
    expected = model(IDS)
    weight = model.layers[0].weight
    mapping = gpuwm.image.publish(model, name)
    assert torch.equal(model(IDS), expected)
    assert model.layers[0].weight is weight
    assert weight.data_ptr() == mapping.torch("layers.0.weight").data_ptr()
    assert gpuwm.mapping_of(model) is mapping
    with pytest.raises(gpuwm.WriteError, match=r"layers\.0\.weight"):
        weight.zero_()
    model.norm.running_mean.zero_()  # buffers are private


def test_an_installed_module_is_the_published_one(daemon: Daemon, name: str) -> None:
    expected = loaded()
    gpuwm.image.publish(loaded(), name)
    model = fresh()
    result = gpuwm.image.install(model, name, replay=model.processing())
    assert torch.equal(model(IDS), expected(IDS))
    assert gpuwm.mapping_of(model) is result.mapping
    assert {"layers.0.weight", "layers.1.method.kernel.scale"} <= set(result.shared)
    assert {"table", "norm.running_mean", "embed.counts"} <= set(result.private)
    assert result.registered == ("embed.counts",)
    assert "sizes['made']" in result.values


def test_the_module_keeps_the_lease(daemon: Daemon, name: str) -> None:
    model = loaded()
    gpuwm.image.publish(model, name)
    installed = fresh()
    gpuwm.image.install(installed, name, replay=installed.processing())
    gc.collect()
    assert daemon.leases(name) == 2
    for each in (model, installed):
        mapping = gpuwm.mapping_of(each)
        assert str(mapping.version) == name
        assert mapping.check(each).lost == ()
        assert "layers.0.weight" in mapping.check(each).shared
    del model, installed, each, mapping
    gc.collect()
    eventually(lambda: daemon.leases(name) == 0)


def test_a_switch_gives_the_other_versions_tensors(daemon: Daemon, name: str) -> None:
    other = loaded(1)
    gpuwm.image.publish(loaded(), name)
    gpuwm.image.publish(loaded(1), name.replace("@v1", "@v2"))
    model = fresh()
    mapping = gpuwm.image.install(model, name, replay=model.processing()).mapping
    with pytest.warns(RuntimeWarning, match=r"attention\.scale: .* here, .* there"):
        mapping.switch(name.replace("@v1", "@v2"))
    model.attention.scale = other.attention.scale  # plain values are the caller's
    assert gpuwm.image.differences(other, model) == []


def test_an_exchange_gives_the_other_versions_tensors(daemon: Daemon, name: str) -> None:
    names = name, name.replace("@v1", "@v2")
    for seed, each in enumerate(names):
        gpuwm.image.publish(loaded(seed), each)
    gc.collect()
    eventually(lambda: not any(map(daemon.leases, names)))
    model = fresh()
    mapping = gpuwm.image.install(model, name, replay=model.processing()).mapping
    other = gpuwm.attach(names[1])
    for seed in (1, 0):
        mapping.exchange(other, stale="attention.scale")
        expected = loaded(seed)
        model.attention.scale = expected.attention.scale  # plain values are the caller's
        assert gpuwm.image.differences(expected, model) == []


def test_views_ties_and_strides_stay(daemon: Daemon, name: str) -> None:
    gpuwm.image.publish(loaded(), name)
    model = fresh()
    gpuwm.image.install(model, name, replay=model.processing())
    attention = model.attention
    assert attention.up is not None
    assert attention.down is not None
    assert attention.up.stride() == (1, 8)
    assert attention.up.data_ptr() == attention.project.weight.data_ptr()
    assert attention.down.data_ptr() == attention.project.weight[8:].data_ptr()
    assert model.head.weight is model.embed.weight
    method = model.layers[0].method
    assert method.kernel.scale is method.scales.weight is method.run.keywords["other"]


def test_replay_leaves_no_scratch_memory(daemon: Daemon, name: str) -> None:
    gpuwm.image.publish(loaded(), name)
    model = fresh()
    seen: list[Any] = []

    def process(layer: Layer) -> None:
        assert not layer.weight.is_meta
        seen.append(weakref.ref(layer.weight.untyped_storage()))
        layer.method.process(layer)

    replay = [(layer, process) for layer in model.layers]
    gc.disable()  # nothing waits for the collector
    gpuwm.image.install(model, name, replay=[*replay, model.processing()[-1]])
    gc.enable()
    assert [reference() for reference in seen] == [None, None]
    assert [layer.method.calls for layer in model.layers] == [1, 1]


def test_nothing_is_installed_where_something_differs(daemon: Daemon, name: str) -> None:
    gpuwm.image.publish(loaded(), name)
    model = fresh()
    before = copy.copy(model.__dict__), copy.copy(model.layers[0].__dict__)
    with pytest.raises(gpuwm.BindError) as error:
        gpuwm.image.install(model, name)
    assert len(error.value.problems) == 6
    assert "layers.0.method.kernel is a image_models.Kernel in the version, None here" in str(
        error.value
    )
    assert (model.__dict__, model.layers[0].__dict__) == before
    assert all(parameter.is_meta for parameter in model.parameters())
    gpuwm.image.install(model, name, replay=model.processing())


def test_a_function_that_fails_leaves_the_module_as_it_was(daemon: Daemon, name: str) -> None:
    gpuwm.image.publish(loaded(), name)
    model = fresh()
    method = model.layers[0].method

    def fail(module: nn.Module) -> None:
        raise ValueError("no such kernel")

    with pytest.raises(ValueError, match="no such kernel"):
        gpuwm.image.install(model, name, replay=[*model.processing()[:2], (model.attention, fail)])
    assert (method.kernel, method.calls) == (None, 0)
    assert all(parameter.is_meta for parameter in model.parameters())
    gpuwm.image.install(model, name, replay=model.processing())
    assert torch.equal(model(IDS), loaded()(IDS))
