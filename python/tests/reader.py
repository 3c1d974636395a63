"""What the documents' examples take as given: a reader has it. `pages.py` makes modules of the
examples, which import these names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnxruntime
import torch

import gpuwm

__all__ = ["gpuwm", "onnxruntime", "os", "torch"]


class Config: ...


class Model(torch.nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()


class Pooling:
    @classmethod
    def load(cls, path: str) -> Pooling:
        raise NotImplementedError


# gpuwm's
client: gpuwm.Client
job: gpuwm.Job
mapping: gpuwm.Mapping
w: gpuwm.Mapping

# the program's: models
config: Config
folder: str
model: torch.nn.Module
one: torch.nn.Module
other: torch.nn.Module
quantised_layers: Iterable[Any]
load_and_quantise: Callable[[torch.nn.Module], None]
make: Callable[[], torch.nn.Module]
make_without_loading: Callable[[], torch.nn.Module]
shard: dict[str, torch.Tensor]
tensors: dict[str, torch.Tensor]
named_tensors: Iterable[tuple[str, torch.Tensor]]
version_id: str
tell_the_others: Callable[[str], None]

# the program's: what it computes
computed: Sequence[torch.Tensor]
encoder: Callable[..., None]
features: torch.Tensor
idle: Callable[[], bool]
image: torch.Tensor
keys: Sequence[bytes]
queue_id: str
run: Callable[..., None]
serving: bool
steps: int
train: Callable[[], None]
wanted: Sequence[torch.Tensor]

# engines
engine: Any
llm: Any
