"""Models that write into their weights: the error says where, and which argument copies these."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from binding_models import version_of
from conftest import DEVICE, by_torch
from torch import nn

import gpuwm
from gpuwm._torch import bind

pytestmark = by_torch

IDS = torch.arange(4, device=DEVICE)


def _private(error: gpuwm.Error) -> list[str]:
    """The argument that an error names."""
    found = re.search(r"private=\['([^']+)'\]", str(error))
    assert found is not None, str(error)
    return [found[1]]


def test_each_error_names_the_module_and_the_argument() -> None:
    """transformers' RWKV scales two weights of each block when it is first called."""
    transformers = pytest.importorskip("transformers")
    config = transformers.RwkvConfig(
        vocab_size=8,
        hidden_size=8,
        attention_hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=12,
        context_length=8,
        rescale_every=1,
    )
    published: Any = transformers.RwkvForCausalLM(config).eval()
    version = version_of(published)
    private: list[str] = []
    for weight in ("attention.output", "feed_forward.value"):
        model: Any = transformers.RwkvForCausalLM(config).eval()
        bind.bind(version, model, private=private)
        with pytest.raises(gpuwm.WriteError) as caught:
            model(IDS[None])
        assert f"div_ would write into rwkv.blocks.0.{weight}.weight" in str(caught.value)
        assert "; RwkvModel does so in _rescale_layers (modeling_rwkv.py:" in str(caught.value)
        assert _private(caught.value) == [f"rwkv.blocks.*.{weight}.weight"]
        private += _private(caught.value)
    model = transformers.RwkvForCausalLM(config).eval()
    result = bind.bind(version, model, private=private)
    assert len(result.private) == 24
    assert torch.equal(model(IDS[None]).logits, copy.deepcopy(published)(IDS[None]).logits)


def test_without_layers_the_argument_is_the_name() -> None:
    class Clamped(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.clamp_(-1, 1)
            return super().forward(x)

    version, model = version_of(nn.Sequential(Clamped(2, 2))), nn.Sequential(Clamped(2, 2))
    bind.bind(version, model)
    with pytest.raises(gpuwm.WriteError, match="; Clamped does so in forward") as caught:
        model(torch.ones(2))
    assert _private(caught.value) == ["0.weight"]
    model = nn.Sequential(Clamped(2, 2))
    bind.bind(version, model, private=_private(caught.value))
    assert model(torch.ones(2)).shape == (2,)


def test_the_module_is_found_whatever_its_code_calls_it() -> None:
    class Scaled(nn.Linear):
        def forward(this, x: torch.Tensor) -> torch.Tensor:  # noqa: N805
            this.weight.mul_(2)
            return super().forward(x)

    model = nn.Sequential(Scaled(2, 2))
    bind.bind(version_of(nn.Sequential(Scaled(2, 2))), model)
    with pytest.raises(gpuwm.WriteError, match=r"; Scaled does so in forward \(test_writing"):
        model(torch.ones(2))


def test_what_nobody_runs_is_named_without_a_module() -> None:
    model = nn.Linear(2, 2)
    bind.bind(version_of(nn.Linear(2, 2)), model)
    with pytest.raises(gpuwm.WriteError, match="shared and read-only: give private="):
        model.weight.zero_()


def test_an_embedding_that_renormalises() -> None:
    """pytorch/pytorch pull request 45595 (issue 26596): nn.Embedding with max_norm changes its
    weight in place in every call, and that was nowhere said."""

    def make() -> nn.Module:
        return nn.ModuleDict({"words": nn.Embedding(4, 2, max_norm=0.1)})

    version, model = version_of(make()), make()
    with pytest.raises(bind.BindError, match="written: Embedding with max_norm=0.1") as caught:
        bind.bind(version, model)
    bind.bind(version, model, private=_private(caught.value))
    model["words"](IDS)  # type: ignore[index]
    assert model["words"].weight.norm(dim=1).max() <= 0.1001  # type: ignore[index]
