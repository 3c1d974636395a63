"""What writes into weights is refused by name, before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Daemon

from tests_engines.starting import Start

# arguments of the engine, its extra configuration, and what the error names
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "EPLB": ({"changed": {"parallel_config.enable_eplb": True}}, {}, "--enable-eplb"),
    "weights that sleep": (
        {"changed": {"model_config.sleep_preserve_parameter_names": ["*"]}},
        {},
        "--sleep-preserve-parameter-names *",
    ),
    "offload": ({"cpu_offload_gb": 1}, {}, "--cpu-offload-gb"),
    "bitsandbytes": ({}, {"inner": "bitsandbytes"}, "bitsandbytes"),
    "a method of quantisation": ({"changed": {"model_config.quantization": "gguf"}}, {}, "gguf"),
    "GGUF": ({}, {"inner": "gguf"}, "GGUF"),
    "sharded state": ({}, {"inner": "sharded_state"}, "sharded state"),
    "itself": ({}, {"inner": "gpuwm"}, "the inner loader"),
    "a mode that is none": ({}, {"mode": "automatic"}, '"mode"'),
    "a key that is none": ({}, {"reff": "llama@v1"}, '"ref"'),
    "a ref without a tag": ({}, {"ref": "llama"}, "needs a tag"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_name(daemon: Daemon, start: Start, what: str) -> None:
    arguments, extra, named = REFUSED[what]
    failed = start("experts", load_format="gpuwm", extra=extra, **arguments).failed()
    assert failed.error in ("Unsupported", "Invalid"), failed.trace
    assert named in failed.text
    assert daemon.admin.list()["versions"] == []


def test_lora_is_not_merged(daemon: Daemon, start: Start) -> None:
    """Engines with adapters share the weights below them, read-only."""
    arguments: dict[str, Any] = {"enable_lora": True, "load_format": "gpuwm"}
    builder = start("dense", extra={"ref": "adapted@v1"}, **arguments)
    assert builder.ask("shared")
    other = start("dense", extra={"ref": "adapted@v1", "mode": "load"}, **arguments)
    assert other.ask("shared")
    assert other.loaded() == start("dense", enable_lora=True).loaded()
