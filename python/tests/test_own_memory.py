"""A version's values in memory that somebody has already: torch's and NumPy's own calls do it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from binding_models import Net, addresses, arrays, trained
from conftest import Daemon, eventually, on_host
from torch import nn

import gpuwm

pytestmark = on_host

IDS = torch.arange(4)
Checkpoint = Callable[[Any], str]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model(daemon: Daemon, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    model = trained(0).to(dtype)
    name, before = checkpoint(arrays(trained(1))), addresses(model)
    model.load_state_dict(gpuwm.attach(name).state_dict())
    gc.collect()
    eventually(lambda: daemon.leases(name) == 0)
    assert addresses(model) == before
    assert torch.equal(model(IDS), trained(1).to(dtype)(IDS))
    with torch.no_grad():
        model.embed.weight.zero_()


def test_a_model_that_lacks_a_name(checkpoint: Checkpoint) -> None:
    part = nn.ModuleDict({"embed": Net().embed})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*head\.weight"):
        part.load_state_dict(gpuwm.attach(checkpoint(arrays(trained()))).state_dict())


def test_a_tensor_and_an_array(daemon: Daemon, checkpoint: Checkpoint) -> None:
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    name = checkpoint({"w": values})
    array, tensor = np.zeros((2, 4)), torch.zeros(2, 8, dtype=torch.float64)[:, ::2]
    with gpuwm.attach(name) as w:
        np.copyto(array, w.numpy("w"))
        tensor.copy_(w.torch("w"))
    eventually(lambda: daemon.leases(name) == 0)
    assert array.tolist() == tensor.tolist() == values.tolist()
