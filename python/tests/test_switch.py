"""Mapping.switch: models, private copies and tensors at the same addresses, or nothing at all."""

from __future__ import annotations

import gc
import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from binding_models import Net, addresses, arrays, trained
from conftest import DEVICE, Daemon, by_torch, interrupted, on_host, run_python

import gpuwm
from gpuwm import _switch

pytestmark = by_torch

IDS = torch.arange(4, device=DEVICE)
Checkpoint = Callable[[Any], str]


def bound(ref: str, **options: Any) -> tuple[gpuwm.Mapping, Net]:
    mapping = gpuwm.attach(ref)
    with gpuwm.empty_init():
        model = Net().eval()
    mapping.bind(model, **options)
    return mapping, model


def test_each_version_answers_as_it_does(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first, private=["hidden.weight"])
    before = addresses(model)
    buffers = dict(model.named_buffers())
    for name, seed in ((second, 1), (first, 0), (first, 0), (second, 1)):
        version = mapping.switch(name)
        assert str(version) == name == str(mapping.version)
        assert torch.equal(model(IDS), trained(seed)(IDS))
        assert model.norm.num_batches_tracked == seed + 3
        assert addresses(model) == before
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
    assert mapping.check(model).lost == ()


def test_the_alias_is_followed(daemon: Daemon, checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    model_name = first.split("@", maxsplit=1)[0]
    mapping, model = bound(model_name)
    assert str(mapping.switch()) == first
    daemon.admin.swap(model_name, second.split("@")[1])
    assert str(mapping.switch()) == second
    assert torch.equal(model(IDS), trained(1)(IDS))
    assert str(mapping.switch(first)) == first
    assert str(mapping.switch()) == first, "what was switched to is followed"


def test_without_its_alias_a_mapping_keeps_its_version_and_follows_when_that_returns(
    daemon: Daemon, checkpoint: Checkpoint
) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    model_name = first.split("@", maxsplit=1)[0]
    mapping, model = bound(model_name)
    daemon.admin.swap(model_name, None)
    with pytest.raises(gpuwm.NotFound):
        mapping.switch()
    assert str(mapping.version) == first
    assert torch.equal(model(IDS), trained(0)(IDS))
    assert daemon.leases(first) == 1
    mapping.check()
    daemon.admin.swap(model_name, second.split("@")[1])
    assert str(mapping.switch()) == second
    assert torch.equal(model(IDS), trained(1)(IDS))


def test_all_models_that_live_are_refreshed(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first)
    with gpuwm.empty_init():
        gone, shared, inner = Net(), Net().eval(), Net()
    mapping.bind(gone)
    mapping.bind(shared, share_buffers=True)
    mapping.bind(inner)
    part = torch.nn.Sequential(inner.norm)
    del gone, inner
    gc.collect()
    mapping.switch(second)
    assert torch.equal(model(IDS), trained(1)(IDS))
    assert torch.equal(shared(IDS), trained(1)(IDS))
    expected = trained(1).get_buffer("norm.running_mean")
    assert torch.equal(part.get_buffer("0.running_mean"), expected)


def test_what_was_bound_elsewhere_is_left_alone(checkpoint: Checkpoint) -> None:
    first, second, third = (checkpoint(arrays(trained(seed))) for seed in (0, 1, 2))
    mapping, model = bound(first)
    other = gpuwm.attach(third)
    other.bind(model)
    mapping.switch(second)
    assert torch.equal(model(IDS), trained(2)(IDS))


def test_a_private_copy_of_another_dtype_is_refreshed(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first, private=["*"])
    model.double()
    mapping.switch(second)
    assert torch.equal(model(IDS), trained(1).double()(IDS))


CAN_NOT: dict[str, Callable[[Net], Any]] = {
    "scale is [4] now": lambda m: setattr(m, "scale", torch.ones(4)),
    "scale is expanded": lambda m: setattr(m, "scale", torch.ones(1).expand(8)),
    "scale has no memory": lambda m: setattr(m, "scale", torch.ones(8, device="meta")),
    "hidden.weight was shared": lambda m: m.hidden.double(),
}


@pytest.mark.parametrize("why", CAN_NOT)
def test_what_can_not_be_refreshed_is_named_and_nothing_changes(
    checkpoint: Checkpoint, why: str
) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first)
    CAN_NOT[why](model)
    mean = model.get_buffer("norm.running_mean").clone()
    with pytest.raises(gpuwm.Mismatch) as caught:
        mapping.switch(second)
    assert why in str(caught.value)
    assert str(mapping.version) == first
    assert torch.equal(model.embed.weight, trained().embed.weight)
    assert torch.equal(model.get_buffer("norm.running_mean"), mean)
    mapping.switch(second, stale=["scale", "hidden.*"])
    assert torch.equal(model.embed.weight, trained(1).embed.weight)
    expected = trained(1).get_buffer("norm.running_mean")
    assert torch.equal(model.get_buffer("norm.running_mean"), expected)


def test_a_copy_made_in_inference_mode_says_so(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first)
    with torch.inference_mode():
        model.scale = model.scale.clone()
    with pytest.raises(gpuwm.Mismatch, match=r"torch.inference_mode\(\)"):
        mapping.switch(second)
    with torch.inference_mode():
        mapping.switch(second)
        assert torch.equal(model(IDS), trained(1)(IDS))


def test_another_layout_is_refused_and_nothing_changes(checkpoint: Checkpoint) -> None:
    first = checkpoint(arrays(trained()))
    other = arrays(trained(1))
    other["hidden.bias"] = other["hidden.bias"].astype(np.float16)
    second = checkpoint(other)
    mapping, model = bound(first)
    with pytest.raises(gpuwm.Mismatch, match=r"hidden.bias"):
        mapping.switch(second)
    with pytest.raises(gpuwm.NotFound):
        mapping.switch("nothing@v1")
    with pytest.raises(gpuwm.TimedOut):
        mapping.switch(first.replace("@v1", "@v9"), wait=0.05)
    assert str(mapping.version) == first
    assert torch.equal(model(IDS), trained()(IDS))
    assert str(mapping.switch()) == first, "what could not be attached is not followed"


def test_a_second_attachment_is_in_the_way(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first)
    other = gpuwm.attach(first)
    with pytest.raises(gpuwm.Busy):
        mapping.switch(second)
    assert torch.equal(model(IDS), trained()(IDS))
    other.close()
    mapping.switch(second)
    assert torch.equal(model(IDS), trained(1)(IDS))


def test_a_subset_switches(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping = gpuwm.attach(first, glob="hidden.*")
    with gpuwm.empty_init():
        model = torch.nn.ModuleDict({"hidden": torch.nn.Linear(8, 8)})
    mapping.bind(model, private=["hidden.bias"])
    mapping.switch(second)
    assert torch.equal(model.get_parameter("hidden.weight"), trained(1).hidden.weight)
    assert torch.equal(model.get_parameter("hidden.bias"), trained(1).hidden.bias)


@on_host
def test_private_writes_are_gone_after_a_switch(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping = gpuwm.attach(first, writes="private")
    model = Net().eval()
    mapping.bind(model)
    with torch.no_grad():
        model.hidden.weight += 1
    mapping.switch(second)
    assert torch.equal(model(IDS), trained(1)(IDS))


def test_a_closed_mapping_does_not_switch(checkpoint: Checkpoint) -> None:
    mapping = gpuwm.attach(checkpoint(arrays(trained())))
    mapping.close()
    with pytest.raises(gpuwm.Closed):
        mapping.switch()


def test_a_refresh_that_fails_says_what_is_not_fresh(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first)
    broken = torch.ones(1).expand(8)
    monkeypatch.setattr(_switch, "_copies", lambda *_: [("scale", broken, model.scale)])
    with pytest.raises(gpuwm.Error, match=r"mapping is of .*@v2 now, but private copy scale"):
        mapping.switch(second)


@on_host
def test_arrays_follow_without_torch(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint({"x": np.full(3, n, np.float32)}) for n in (1, 2))
    code = """
import sys, gpuwm
mapping = gpuwm.attach(sys.argv[1])
array, tensor = mapping.numpy("x"), mapping["x"]
mapping.switch(sys.argv[2])
assert "torch" not in sys.modules
print(array.tolist(), tensor.numpy().tolist(), mapping.version)
"""
    assert run_python(code, first, second) == f"[2.0, 2.0, 2.0] [2.0, 2.0, 2.0] {second}\n"


def test_a_signal_ends_the_wait_and_nothing_has_changed(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first)
    interrupted(lambda: mapping.switch("never-there@v1", wait=60), lambda: None)
    assert str(mapping.version) == first
    assert torch.equal(model(IDS), trained(0)(IDS))
    assert str(mapping.switch(second, wait=60)) == second
    assert torch.equal(model(IDS), trained(1)(IDS))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:TensorFloat32:UserWarning")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs one for C++")
def test_what_torch_compiled_reads_the_new_version(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """By its default compiler, buffers shared too."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)  # no pool of processes
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, model = bound(first, share_buffers=True)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        assert torch.allclose(compiled(IDS), trained(0)(IDS))
        mapping.switch(second)
        assert torch.allclose(compiled(IDS), trained(1)(IDS))


def test_a_child_is_told_at_once(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint(arrays(trained(seed))) for seed in (0, 1))
    mapping, _ = bound(first)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            mapping.switch(second, wait=60)
        except gpuwm.InChild:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_wait_goes_on_over_a_restart(checkpoint: Checkpoint, daemon: Daemon) -> None:
    """The last test here: its gpuwmd comes back with nothing."""
    mapping, model = bound(checkpoint(arrays(trained(0))))
    second = arrays(trained(1))
    over = threading.Event()

    def again() -> None:
        daemon.start()
        daemon.load("again@v2", second)
        over.wait(60)  # gpuwmd ends with the thread that started it

    daemon.kill()
    starting = threading.Thread(target=again)
    starting.start()
    assert str(mapping.switch("again@v2", wait=60)) == "again@v2"
    assert torch.equal(model(IDS), trained(1)(IDS))
    over.set()
    starting.join()
