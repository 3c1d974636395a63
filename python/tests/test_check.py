"""Mapping.check(model): what is shared, private or lost, by address."""

from __future__ import annotations

from typing import Any

import torch
from binding_models import Net, trained, version_of

from gpuwm._torch import bind, check, init

BUFFERS = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "scale", "table"}
WEIGHTS = {"hidden.weight", "hidden.bias", "norm.weight", "norm.bias"}
TIED = {"embed.weight", "head.weight"}


def bound(**options: Any) -> tuple[Any, Net]:
    with init.empty_init():
        model = Net().eval()
    version = version_of(trained())
    bind.bind(version, model, **options)
    return version, model


def test_what_bind_did_is_listed() -> None:
    version, model = bound(private=["norm.weight"])
    result = check.check(version, model)
    assert set(result.shared) == WEIGHTS - {"norm.weight"} | TIED
    assert set(result.private) == BUFFERS | {"norm.weight"}
    assert (result.lost, result.unbound) == ((), ())


def test_the_same_device_keeps_sharing() -> None:
    version, model = bound()
    model.to("cpu").cpu().float().to(torch.float32)
    assert check.check(version, model).lost == ()


def test_what_lost_its_sharing_is_listed() -> None:
    version, model = bound(share_buffers=["scale"])
    model.hidden.half()
    model.norm.weight.data = model.norm.weight.data.clone()
    model.scale = model.scale * 2
    result = check.check(version, model)
    assert set(result.lost) == {"hidden.weight", "hidden.bias", "norm.weight", "scale"}
    assert set(result.shared) == {"norm.bias"} | TIED
    model.half()
    assert set(check.check(version, model).lost) == WEIGHTS | TIED | {"scale"}


def test_a_view_of_shared_memory_is_shared() -> None:
    version, model = bound()
    model.hidden.weight.data = version.tensors["hidden.weight"][2:]
    assert "hidden.weight" in check.check(version, model).shared


def test_models_that_were_not_bound() -> None:
    version, _ = bound()
    with init.empty_init():
        empty = Net()
    result = check.check(version, empty)
    assert set(result.unbound) == WEIGHTS | TIED
    assert set(result.private) == BUFFERS
    assert set(check.check(version, trained()).lost) == WEIGHTS | TIED
    assigned = trained()
    assigned.load_state_dict(version.state_dict(), assign=True)
    assert set(check.check(version, assigned).shared) > WEIGHTS


def test_another_version_is_another() -> None:
    version, model = bound(private=["hidden.weight"])
    other = version_of(trained(1))
    assert set(check.check(other, model).lost) == WEIGHTS | TIED
    bind.bind(other, model)
    assert check.check(other, model).lost == ()
    assert set(check.check(version, model).lost) == WEIGHTS | TIED


def test_a_wrapped_model_is_known_by_its_modules() -> None:
    version, model = bound(private=["norm.weight"])
    wrapped = torch.nn.Sequential(model)
    result = check.check(version, wrapped)
    assert {f"0.{name}" for name in WEIGHTS - {"norm.weight"} | TIED} == set(result.shared)
    assert "0.norm.weight" in result.private
