"""What of a trainer's tensors vLLM took, and what it left."""

from __future__ import annotations

import gc
import types
from typing import Any

import numpy as np
import pytest
import torch

import gpuwm

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn


def test_memory_of_a_tensor_that_is_gone_is_nobodys() -> None:
    from gpuwm.vllm.coverage import Tensors

    memory = np.zeros(8, dtype=np.float32)
    tensors = Tensors()
    for _, plain in tensors.given(iter([("a", torch.from_numpy(memory))])):
        assert tensors.name_of(plain) == "a"
    del plain
    gc.collect()
    assert tensors.name_of(torch.from_numpy(memory)) is None


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scalar", torch.ones(2))
        self.register_buffer("derived", torch.ones(1))
        self.register_buffer("table", torch.ones(4), persistent=False)


def left_by(loads: Any) -> set[str]:
    """Names of buffers that neither loading nor post-processing wrote."""
    from gpuwm.vllm import fill
    from gpuwm.vllm.coverage import Tensors, Watched

    layer = Layer()
    buffers = fill._saved_buffers(layer)
    assert set(buffers) == {"scalar", "derived"}
    watched = Watched(buffers, Tensors())
    with watched:
        loads(layer)
    filled: Any = object.__new__(fill._Filling)
    filled._model = types.SimpleNamespace()
    left = filled._check_written(watched, buffers)
    buffers["derived"].mul_(3)  # post-processing
    return {name for name, since in left.items() if fill._is_unchanged(since)}


def test_a_buffer_that_nobody_loads_is_known() -> None:
    assert left_by(lambda layer: None) == {"scalar"}
    assert left_by(lambda layer: layer.scalar.copy_(torch.zeros(2))) == set()


def test_a_part_of_a_buffer_is_missing() -> None:
    with pytest.raises(gpuwm.Mismatch, match="a part of buffer scalar is missing"):
        left_by(lambda layer: layer.scalar[:1].copy_(torch.zeros(1)))
