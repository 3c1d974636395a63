"""gpuwm.mapping_of: from a model to its mapping, whatever became of the mapping's own object."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from binding_models import Net, arrays, trained
from conftest import DEVICE, Daemon, by_torch, eventually
from torch import nn

import gpuwm

pytestmark = by_torch

IDS = torch.arange(4, device=DEVICE)
Checkpoint = Callable[[Any], str]


@pytest.fixture
def ref(checkpoint: Checkpoint) -> str:
    return checkpoint(arrays(trained()))


def empty() -> Net:
    with gpuwm.empty_init():
        return Net().eval()


def bound(ref: str, **options: Any) -> tuple[gpuwm.Mapping, Net]:
    mapping, model = gpuwm.attach(ref), empty()
    mapping.bind(model, **options)
    return mapping, model


def test_it_is_the_object_that_bound_the_model(ref: str) -> None:
    mapping, model = bound(ref)
    assert gpuwm.mapping_of(model) is mapping
    assert gpuwm.mapping_of(nn.Sequential(model)) is mapping
    assert gpuwm.mapping_of(model.hidden) is mapping


def test_a_model_has_one_though_its_mapping_is_gone(ref: str, daemon: Daemon) -> None:
    with gpuwm.attach(ref, glob="*") as mapping:
        model = empty()
        mapping.bind(model)
    with pytest.raises(gpuwm.Closed):
        len(mapping)
    del mapping
    found = gpuwm.mapping_of(model)
    assert gpuwm.mapping_of(model) is found
    assert found.check(model).lost == ()
    assert list(found) == list(gpuwm.attach(ref))
    found.drop()
    assert str(gpuwm.mapping_of(model).version) == ref
    eventually(lambda: daemon.leases(ref) == 1)  # that of the other mapping, above, goes
    del model, found
    eventually(lambda: daemon.leases(ref) == 0)


def test_a_model_that_was_built_can_be_switched(ref: str, checkpoint: Checkpoint) -> None:
    """Private copies get the values of the new version as well."""
    model = gpuwm.build(ref, lambda: Net().eval(), private=["norm.*"])
    other = checkpoint(arrays(trained(1)))
    mapping = gpuwm.mapping_of(model)
    assert str(mapping.switch(other)) == other
    assert torch.equal(model(IDS), trained(1)(IDS))
    assert str(gpuwm.mapping_of(model).switch()) == other  # what was switched to last


def test_a_model_that_was_published_has_one(daemon: Daemon) -> None:
    model = trained()
    mapping = gpuwm.publish(model, "of@v1")
    assert gpuwm.mapping_of(model) is mapping


def test_a_model_that_came_through_multiprocessing_has_one(ref: str) -> None:
    got = pickle.loads(ForkingPickler.dumps(bound(ref)[1]))
    mapping = gpuwm.mapping_of(got)
    assert str(mapping.version) == ref
    assert "hidden.weight" in mapping.check(got).shared


def test_memory_that_nobody_uses_is_given_back(ref: str, daemon: Daemon) -> None:
    """Though the model lives, and was bound to it once."""
    model = bound(ref)[1]
    assert daemon.leases(ref) == 1
    model.double()
    eventually(lambda: daemon.leases(ref) == 0)
    with pytest.raises(gpuwm.Invalid, match="nothing of the Net lies in a version: bind it first"):
        gpuwm.mapping_of(model)


def test_private_copies_keep_nothing(ref: str, daemon: Daemon) -> None:
    mapping, model = bound(ref, private=["*"])
    assert gpuwm.mapping_of(model) is mapping
    del mapping
    eventually(lambda: daemon.leases(ref) == 0)
    with pytest.raises(gpuwm.Invalid, match="nothing of the Net"):
        gpuwm.mapping_of(model)


def test_parts_of_several_versions_are_named(ref: str, checkpoint: Checkpoint) -> None:
    other = checkpoint(arrays(trained(1)))
    both = nn.ModuleList([bound(ref)[1], bound(other)[1]])
    with pytest.raises(gpuwm.Invalid, match=f"bound to 2 mappings, of {ref}, {other}: ask for a"):
        gpuwm.mapping_of(both)
    assert str(gpuwm.mapping_of(both[1]).version) == other


def test_what_has_none_is_told() -> None:
    not_a_model: Any = {}
    with pytest.raises(gpuwm.Invalid, match="nothing of the Net lies in a version"):
        gpuwm.mapping_of(trained())
    with pytest.raises(gpuwm.Invalid, match="nothing of the Net lies in a version"):
        gpuwm.mapping_of(empty())
    with pytest.raises(TypeError, match="^model=.*: give a module of torch"):
        gpuwm.mapping_of(not_a_model)


# ---- a second mapping of the same version ------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"glob": "embed.*"}, {"glob": ["norm.*", "hidden.*"]}])
def test_another_mapping_of_the_version_knows_what_is_shared(
    ref: str, options: dict[str, Any]
) -> None:
    mapping, model = bound(ref, private=["norm.weight"])
    other = gpuwm.attach(ref, **options)
    assert other.check(model) == mapping.check(model)
    assert "hidden.weight" in other.check(model).shared
    assert "norm.weight" in other.check(model).private
    model.hidden.double()
    assert set(other.check(model).lost) >= {"hidden.weight", "hidden.bias"}


def test_a_mapping_that_was_mapped_apart_knows_it_too(ref: str) -> None:
    """By another name and at another address: a private one, and names that the model changed."""
    if DEVICE != "cpu":
        pytest.skip("private writes are for host")
    mapping, model = gpuwm.attach(ref), empty()
    renamed = nn.ModuleDict({"inner": model})
    gpuwm._torch.bind.bind(mapping, renamed, names={name: f"inner.{name}" for name in mapping})
    other = gpuwm.attach(ref, writes="private")
    for asked in (gpuwm.attach(ref), other):
        assert "inner.hidden.weight" in asked.check(renamed).shared
    elsewhere = gpuwm.attach(ref, writes="private")
    elsewhere.bind(renamed["inner"])
    assert "inner.hidden.weight" in elsewhere.check(renamed).shared


def test_another_version_knows_nothing_of_it(ref: str, checkpoint: Checkpoint) -> None:
    model = bound(ref)[1]
    other = gpuwm.attach(checkpoint(arrays(trained(1))))
    assert "hidden.weight" in other.check(model).lost
