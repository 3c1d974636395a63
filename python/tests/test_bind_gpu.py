"""Binding to memory of a GPU: what only two kinds of device can show. Needs torch with a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch
from binding_models import Net, Version, trained, version_of
from torch import nn

from gpuwm._torch import bind, check, guards, init

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU here")

IDS = torch.arange(4)


def on_gpu(model: nn.Module) -> Version:
    version: Version = version_of(model.cuda())
    return version


def test_buffers_of_the_cpu_move_along() -> None:
    version, ordinary = on_gpu(trained()), trained().cuda()
    with init.empty_init():
        model = Net().eval()
    table = model.table
    before = torch.cuda.memory_allocated()
    bind.bind(version, model)  # type: ignore[arg-type]
    assert torch.cuda.memory_allocated() - before < 16 << 10, "buffers only"
    assert model.table is table
    assert {tensor.device for tensor in model.state_dict().values()} == {torch.device("cuda", 0)}
    assert torch.equal(model(IDS.cuda()), ordinary(IDS.cuda()))
    model.to("cuda")
    assert check.check(version, model).lost == ()  # type: ignore[arg-type]


def test_a_model_on_another_device_is_refused() -> None:
    version, model = on_gpu(trained()), trained(1)
    with pytest.raises(bind.BindError, match=r"device: hidden.weight is on cpu in the model"):
        bind.bind(version, model)  # type: ignore[arg-type]
    assert model.hidden.weight.device.type == "cpu"
    assert torch.equal(model(IDS), trained(1)(IDS))


def test_what_moved_has_lost_its_sharing() -> None:
    version = on_gpu(trained())
    with init.empty_init():
        model = Net().eval()
    bind.bind(version, model)  # type: ignore[arg-type]
    model.cpu()
    result = check.check(version, model)  # type: ignore[arg-type]
    assert set(result.lost) > {"hidden.weight", "embed.weight"}
    assert not isinstance(model.hidden.weight, guards.Shared)
    with torch.no_grad():
        model.hidden.weight += 1


def test_a_recurrent_network_keeps_its_sharing_until_it_is_flattened() -> None:
    ordinary = nn.LSTM(8, 8).cuda()
    version = on_gpu(ordinary)
    with init.empty_init():
        model = nn.LSTM(8, 8)
    bind.bind(version, model)  # type: ignore[arg-type]
    x = torch.ones(1, 8, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its weights are not one piece of memory
        assert torch.allclose(model(x)[0], ordinary(x)[0])
    assert check.check(version, model).lost == ()  # type: ignore[arg-type]
    model.flatten_parameters()
    assert "weight_ih_l0" in check.check(version, model).lost  # type: ignore[arg-type]
