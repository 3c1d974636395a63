"""Engines that differ in what weights depend on get another version, or an error that says what."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Daemon, eventually

from tests_engines.comparing import differences
from tests_engines.starting import Start

ROPE = {"rope_type": "default", "rope_theta": 5000.0}
# what the second engine has otherwise, and the field that the error names
DIFFERENT: dict[str, tuple[str, dict[str, Any], str]] = {
    "dtype": ("dense", {"dtype": "float16"}, "dtype"),
    "quantisation": ("dense", {"quantization": "fp8"}, "quantization"),
    "checkpoint": ("dense-2", {}, "identity"),
    "model": ("tied", {}, "config"),
    "override": ("dense", {"hf_overrides": {"rope_parameters": ROPE}}, "config"),
    "LoRA": ("dense", {"enable_lora": True}, "lora"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_version_of_another_key_is_refused(daemon: Daemon, start: Start, what: str) -> None:
    kind, arguments, field = DIFFERENT[what]
    extra = {"ref": f"{what.lower()}@v1"}
    start("dense", load_format="gpuwm", extra=extra).loaded()
    failed = start(kind, load_format="gpuwm", extra=extra, **arguments).failed()
    assert failed.error == "Mismatch"
    said = f"differs from this engine in {field}"
    if field == "identity":
        said = "was made from another checkpoint than this engine loads, from "
    assert f"{what.lower()}@v1 {said}" in failed.text
    assert 'give another "ref", or none' in failed.text
    eventually(lambda: daemon.leases(f"{what.lower()}@v1") == 1)


def test_engines_with_a_kv_connector_share_weights_with_others(
    daemon: Daemon, start: Start
) -> None:
    transfer = {"kv_connector": "GpuwmConnector", "kv_role": "kv_both"}
    start("dense", load_format="gpuwm").loaded()
    other = start("dense", load_format="gpuwm", kv_transfer_config=transfer)
    other.loaded()
    assert "attached dense@vllm-" in other.text()


def test_derived_names_differ_with_the_key(daemon: Daemon, start: Start) -> None:
    cases: dict[str, tuple[str, dict[str, Any], str]] = {"first": ("dense", {}, ""), **DIFFERENT}
    for number, (what, (kind, arguments, _)) in enumerate(cases.items(), 1):
        engine = start(kind, load_format="gpuwm", **arguments)
        assert differences(start(kind, **arguments), engine) == [], what
        assert sum("vllm-" in row["tag"] for row in daemon.admin.list()["versions"]) == number
    again = start("dense", load_format="gpuwm")
    again.loaded()
    assert "attached dense@vllm-" in again.text()
