"""Mapping.exchange: two mappings change places, with their private copies, or nothing changes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from binding_models import Net, addresses, arrays, trained
from conftest import DEVICE, Daemon, by_torch, eventually, on_host, run_python

import gpuwm

pytestmark = by_torch

IDS = torch.arange(4, device=DEVICE)
Checkpoint = Callable[[Any], str]


@pytest.fixture
def names(checkpoint: Checkpoint) -> tuple[str, str]:
    """Two versions of a layout, of nets that were trained with the seeds 0 and 1."""
    return checkpoint(arrays(trained(0))), checkpoint(arrays(trained(1)))


def bound(mapping: gpuwm.Mapping, **options: Any) -> Net:
    with gpuwm.empty_init():
        model = Net().eval()
    mapping.bind(model, **options)
    return model


def answers_as(model: Net, seed: int) -> bool:
    return torch.equal(model(IDS), trained(seed)(IDS))


def test_a_model_goes_there_and_back_and_the_other_mapping_too(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    model = bound(mapping, private=["hidden.weight"])
    before = addresses(model)
    there = other["hidden.bias"]
    for seed in (1, 0, 1):
        version = mapping.exchange(other)
        assert version == mapping.version
        assert (str(mapping.version), str(other.version)) == (names[seed], names[1 - seed])
        assert answers_as(model, seed)
        assert model.norm.num_batches_tracked == seed + 3
        assert addresses(model) == before
        assert torch.equal(there.torch(), trained(1 - seed).hidden.bias)
        assert str(mapping.ref("hidden.bias").label) == names[seed]
        assert mapping.check(model).lost == ()
        mapping.verify()
        other.verify()


def test_each_lease_and_what_is_followed_goes_with_its_version(
    daemon: Daemon, names: tuple[str, str]
) -> None:
    model_name, tag = names[1].split("@")
    mapping, other = gpuwm.attach(model_name), gpuwm.attach(names[1])
    model = bound(mapping)
    mapping.exchange(other)
    other.close()
    assert [daemon.leases(name) for name in names] == [0, 1]
    assert str(mapping.switch()) == names[1], "what `other` followed"
    other = gpuwm.attach(model_name)
    mapping.exchange(other)
    daemon.admin.swap(model_name, tag)
    assert str(mapping.switch()) == names[1], "the alias"
    assert answers_as(model, 1)
    mapping.check()
    other.close()
    assert [daemon.leases(name) for name in names] == [0, 1]


def test_a_client_of_its_own_goes_with_the_lease(daemon: Daemon, names: tuple[str, str]) -> None:
    own = os.path.relpath(daemon.socket)  # another path of the same socket
    mapping = gpuwm.attach(names[0])
    other = gpuwm.attach(names[1], client=gpuwm.connect(own))
    sockets = mapping.ref("scale").socket, other.ref("scale").socket
    mapping.exchange(other)
    assert (other.ref("scale").socket, mapping.ref("scale").socket) == sockets
    assert len(set(sockets)) == 2
    mapping.close()
    assert [daemon.leases(name) for name in names] == [1, 0]


def test_a_check_changes_nothing(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    model = bound(mapping)
    assert str(mapping.exchange(other, check=True)) == names[0] == str(mapping.version)
    assert answers_as(model, 0)
    model.scale = torch.ones(4)
    with pytest.raises(gpuwm.Mismatch, match=r"scale is \[4\] now"):
        mapping.exchange(other, check=True)
    mapping.exchange(other, check=True, stale="scale")
    assert str(mapping.switch(stale="scale")) == names[0], "what it followed"


def test_what_can_not_be_refreshed_is_named_and_nothing_changes(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    model = bound(mapping)
    mean = model.get_buffer("norm.running_mean").clone()
    model.hidden.double()
    with pytest.raises(gpuwm.Mismatch, match=r"hidden\.weight was shared") as caught:
        mapping.exchange(other)
    assert f"{names[0]} can't be replaced" in str(caught.value)
    assert "exchange(stale=[" in str(caught.value)
    assert (str(mapping.version), str(other.version)) == names
    assert torch.equal(model.get_buffer("norm.running_mean"), mean)
    mapping.exchange(other, stale=["hidden.*"])
    expected = trained(1).get_buffer("norm.running_mean")
    assert torch.equal(model.get_buffer("norm.running_mean"), expected)


def test_what_is_bound_to_the_other_mapping_is_in_the_way(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    model, second = bound(mapping), bound(other)
    for check in (False, True):
        with pytest.raises(gpuwm.Busy, match=f"{names[1]}, to which .* embed.weight and"):
            mapping.exchange(other, check=check)
    assert answers_as(model, 0)
    assert answers_as(second, 1)
    del second
    mapping.exchange(other)
    assert answers_as(model, 1)


def test_another_attachment_is_in_the_way_and_named(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    model = bound(mapping)
    for name in names:
        third = gpuwm.attach(name)
        for check in (False, True):
            with pytest.raises(gpuwm.Busy, match=f"shares the mapping of {name}"):
                mapping.exchange(other, check=check)
        third.close()
    assert answers_as(model, 0)


def test_another_layout_is_refused(names: tuple[str, str], checkpoint: Checkpoint) -> None:
    changed = arrays(trained(1))
    changed["hidden.bias"] = changed["hidden.bias"].astype(np.float16)
    mapping, other = gpuwm.attach(names[0]), gpuwm.attach(checkpoint(changed))
    with pytest.raises(gpuwm.Mismatch, match=r"hidden\.bias"):
        mapping.exchange(other)
    assert str(mapping.version) == names[0]


def test_wrong_arguments_are_refused(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    with pytest.raises(gpuwm.Invalid, match="the same one"):
        mapping.exchange(mapping)
    with pytest.raises(TypeError, match="other="):
        mapping.exchange(names[1])  # type: ignore[arg-type]
    other.close()
    with pytest.raises(gpuwm.Closed):
        mapping.exchange(other)


@on_host
def test_only_one_with_private_writes_is_refused(names: tuple[str, str]) -> None:
    mapping, other = gpuwm.attach(names[0]), gpuwm.attach(names[1], writes="private")
    with pytest.raises(gpuwm.Invalid, match="written privately"):
        mapping.exchange(other)


@on_host
def test_arrays_follow_without_torch(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint({"x": np.full(3, n, np.float32)}) for n in (1, 2))
    code = """
import sys, gpuwm
mapping, other = map(gpuwm.attach, sys.argv[1:])
array, tensor = mapping.numpy("x"), other["x"]
mapping.exchange(other)
assert "torch" not in sys.modules
print(array.tolist(), tensor.numpy().tolist(), mapping.version)
"""
    assert run_python(code, first, second) == f"[2.0, 2.0, 2.0] [1.0, 1.0, 1.0] {second}\n"


def test_a_child_is_refused(names: tuple[str, str]) -> None:
    mapping, other = map(gpuwm.attach, names)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            mapping.exchange(other)
        except gpuwm.InChild:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (str(mapping.version), str(other.version)) == names


def test_gpuwmd_may_be_gone(daemon: Daemon, names: tuple[str, str]) -> None:
    """The last test here: its gpuwmd comes back with nothing."""
    mapping, other = map(gpuwm.attach, names)
    model = bound(mapping)
    daemon.kill()
    mapping.exchange(other)
    assert answers_as(model, 1)
    mapping.exchange(other)
    assert answers_as(model, 0)
    mapping.exchange(other)
    daemon.start()
    eventually(lambda: _lost(mapping) and _lost(other))
    mapping.exchange(other)
    assert answers_as(model, 0)
    other.close()


def _lost(mapping: gpuwm.Mapping) -> bool:
    try:
        mapping.check()
    except (gpuwm.Lost, gpuwm.NotFound):
        return True
    return False
