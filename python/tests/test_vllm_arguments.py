"""Fields of vLLM's configuration that gpuwm does not know, without vLLM."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

import gpuwm
from gpuwm.vllm import arguments


@dataclasses.dataclass
class ModelConfig:
    model: str
    seed: int = 0
    enable_prompt_embeds: bool = False
    folded: bool = False
    sorted: bool | None = None


@dataclasses.dataclass
class NestedConfig:
    depth: int = 1


@dataclasses.dataclass
class SpeculativeConfig:
    method: str | None = None


@dataclasses.dataclass
class VllmConfig:
    model_config: Any
    scheduler_config: Any = None
    additional_config: dict[str, Any] = dataclasses.field(default_factory=dict)
    nested_config: Any = dataclasses.field(default_factory=NestedConfig)
    speculative_config: Any = None


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_told", set())


def others(config: Any = None, is_draft: bool = False, **model: Any) -> str:
    made = ModelConfig("/models/llama", **model)
    return arguments.others(config or VllmConfig(made), made, is_draft)


def test_an_engine_of_defaults_has_nothing() -> None:
    assert others() == ""
    assert others(sorted=False) == ""  # vLLM has filled it in
    assert others(sorted=True) != ""


def test_harmless_fields_do_not_count() -> None:
    config = VllmConfig(None, scheduler_config={"max_num_seqs": 7})
    assert others(config, seed=5) == ""


def test_known_fields_count_and_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert others(enable_prompt_embeds=True) == '{"ModelConfig.enable_prompt_embeds":true}'
    config = VllmConfig(None, additional_config={"a": 1})
    assert others(config) == '{"VllmConfig.additional_config":{"a":1}}'
    assert caplog.text == ""


def test_unknown_fields_count_and_are_told_by_name_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vllm.gpuwm"):
        for _ in range(2):
            assert others(folded=True) == '{"ModelConfig.folded":true}'
        assert others(VllmConfig(None, nested_config=NestedConfig(2))) == '{"NestedConfig.depth":2}'
        assert others(VllmConfig(None, nested_config=None)) == '{"VllmConfig.nested_config":null}'
    assert caplog.text.count("ModelConfig.folded") == 1
    assert caplog.text.count("NestedConfig.depth") == 1


def test_what_concerns_a_draft_counts_for_the_draft() -> None:
    config = VllmConfig(None, speculative_config=SpeculativeConfig("eagle"))
    assert others(config) == ""
    assert others(config, is_draft=True) == '{"SpeculativeConfig.method":"eagle"}'


def test_a_configuration_without_fields_is_refused() -> None:
    with pytest.raises(gpuwm.Unsupported, match="whose fields can't be listed"):
        arguments.others(object(), None, False)
