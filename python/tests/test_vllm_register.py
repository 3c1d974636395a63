"""What gpuwm does in a vLLM that lacks what it needs."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import gpuwm.vllm


def test_register_says_what_is_missing_and_does_not_raise(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM calls it in engines that use nothing of gpuwm, and would not start."""
    transfer = ModuleType("vllm.distributed.weight_transfer")
    vars(transfer)["WeightTransferEngineFactory"] = object
    for module in (ModuleType("vllm"), ModuleType("vllm.distributed"), transfer):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    gpuwm.vllm.register()
    assert "can't have the load format gpuwm" in caplog.text
    assert "can't have the weight transfer backend gpuwm" in caplog.text
    assert "register_engine" in caplog.text
    assert "KV connector" not in caplog.text  # a vLLM without connectors is no error
