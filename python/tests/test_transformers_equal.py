"""Where the outputs of a model on shared weights equal those of transformers' own, in every bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from conftest import DEVICE, Daemon, by_torch
from torch.utils._python_dispatch import TorchDispatchMode

import gpuwm.transformers

pytestmark = by_torch

SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "initializer_range": 0.5,
}
FAMILIES: dict[str, tuple[type[Any], type[Any], dict[str, Any]]] = {
    "recurrentgemma": (
        transformers.RecurrentGemmaConfig,
        transformers.RecurrentGemmaForCausalLM,
        {"num_hidden_layers": 3, "attention_window_size": 16, "lru_width": 64},
    ),
    "longformer": (
        transformers.LongformerConfig,
        transformers.LongformerModel,
        {"num_hidden_layers": 2, "attention_window": 4, "max_position_embeddings": 64},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_equal_those_of_a_model_without_gradients(daemon: Daemon, family: str) -> None:
    config, kind, more = FAMILIES[family]
    torch.manual_seed(1)
    folder = daemon.models / family
    kind(config(**SMALL, **more)).save_pretrained(folder)
    daemon.load_folder(f"{family}@v1", folder)
    own = kind.from_pretrained(folder).to(DEVICE).eval().requires_grad_(False)
    shared = gpuwm.transformers.from_pretrained(f"{family}@v1", kind)
    # Of this size, Longformer differs in the last bits if its parameters require gradients.
    ids = torch.arange(32, device=DEVICE).view(2, 16)
    with torch.inference_mode():
        assert torch.equal(own(ids)[0], shared(ids)[0])


class Called(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators that torch calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_matmul_takes_another_path_without_gradients() -> None:
    """What docs/python/models.md says of torch. If this fails, there is one path, and the page may
    say less."""
    called = {}
    for requires in (True, False):
        weight = torch.ones(2, 5, requires_grad=requires)
        with torch.no_grad(), Called() as operators:
            torch.matmul(torch.ones(3, 4, 2).transpose(0, 1), weight)
        called[requires] = operators.names & {"mm", "bmm"}
    assert called == {True: {"mm"}, False: {"bmm"}}
