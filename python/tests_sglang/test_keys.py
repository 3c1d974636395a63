"""Engines that differ in what weights depend on get another version, or an error that says what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Daemon, eventually

from tests_engines.comparing import differences
from tests_engines.starting import Start

from . import FORGOTTEN, RELEASE
from .installed import NEWEST, OLDEST, VERSION

ROPE = {"rope_type": "default", "rope_theta": 5000.0}
UNKNOWN = {"deepep_config": "sms.json"}
FORGETTING = {FORGOTTEN: "deepep_config"}
# what the second engine has otherwise, and the field that the error names
DIFFERENT: dict[str, tuple[str, dict[str, Any], str]] = {
    "dtype": ("dense", {"dtype": "float16"}, "dtype"),
    "checkpoint": ("dense-2", {}, "identity"),
    "model": ("tied", {}, "config"),
    "override": (
        "dense",
        {"json_model_override_args": json.dumps({"rope_parameters": ROPE})},
        "config",
    ),
    "LoRA": ("dense", {"changed": {"enable_lora": True}}, "lora"),
    "cache": ("dense", {"kv_cache_dtype": "fp8_e5m2"}, "cache"),
    "head": ("dense", {"enable_fp32_lm_head": True}, "linear"),
    "arguments": ("dense", {"changed": UNKNOWN, "environment": FORGETTING}, "arguments"),
    "release": ("dense", {"environment": {RELEASE: "0.5.15"}}, "sglang"),
    "variable": ("dense", {"environment": {"SGLANG_FORCE_FP8_MARLIN": "1"}}, "environment"),
    "router": ("dense", {"environment": {"SGLANG_OPT_USE_BF16_ROUTER_GEMM": "0"}}, "environment"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_version_of_another_key_is_refused(daemon: Daemon, start: Start, what: str) -> None:
    kind, arguments, field = DIFFERENT[what]
    extra = {"ref": f"{what.lower()}@v1"}
    start("dense", load_format="gpuwm", extra=extra).loaded()
    failed = start(kind, load_format="gpuwm", extra=extra, **arguments).failed()
    assert failed.error == "Mismatch", failed.trace
    said = f"differs from this engine in {field}"
    if field == "identity":
        said = "was made from another checkpoint than this engine loads, from "
    assert f"{what.lower()}@v1 {said}" in failed.text
    assert 'give another "ref", or none' in failed.text
    eventually(lambda: daemon.leases(f"{what.lower()}@v1") == 1)


def test_derived_names_differ_with_the_key(daemon: Daemon, start: Start) -> None:
    cases = {"first": ("dense", {}, ""), **DIFFERENT}
    del cases["release"]  # which the tests pretend
    for number, (what, (kind, arguments, _)) in enumerate(cases.items(), 1):
        engine = start(kind, load_format="gpuwm", **arguments)
        assert differences(start(kind, **arguments), engine) == [], what
        assert sum("sglang-" in row["tag"] for row in daemon.admin.list()["versions"]) == number


# What tells two engines of one service apart, and no more.
ANOTHER = {
    "host": "127.0.0.2",
    "port": 31234,
    "nccl_port": 31235,
    "random_seed": 7,
    "log_level": "warning",
    "log_level_http": "error",
    "log_requests": True,
    "enable_metrics": True,
    "served_model_name": "another",
    "weight_version": "another",
    "api_key": "of its users",
    "admin_api_key": "of its operator",
    "mem_fraction_static": 0.5,
    "max_running_requests": 3,
    "max_total_tokens": 512,
    "max_prefill_tokens": 128,
    "chunked_prefill_size": 64,
    "context_length": 100,
    "watchdog_timeout": 99,
}


def test_engines_that_differ_in_what_weights_do_not_depend_on_share(
    daemon: Daemon, start: Start
) -> None:
    first = start("dense", load_format="gpuwm")
    first.loaded()
    names = [row["tag"] for row in daemon.admin.list("dense")["versions"]]
    again = start("dense", load_format="gpuwm", **ANOTHER)
    again.loaded()
    rows = daemon.admin.list("dense")["versions"]
    assert [row["tag"] for row in rows] == names
    assert 2 in [row["leases"] for row in rows]
    assert "weights may depend on these arguments" not in first.text() + again.text()


def test_an_argument_that_gpuwm_does_not_know_is_told(daemon: Daemon, start: Start) -> None:
    engine = start("dense", load_format="gpuwm", changed=UNKNOWN, environment=FORGETTING)
    engine.loaded()
    assert "they agree in them: deepep_config" in engine.text()


def test_what_sglang_decides_counts_and_not_what_its_user_typed(
    daemon: Daemon, start: Start
) -> None:
    """On a CPU, SGLang chooses this backend for attention by itself."""
    start("dense", load_format="gpuwm").loaded()
    typed = start("dense", load_format="gpuwm", attention_backend="torch_native")
    typed.loaded()
    assert "attached dense@sglang-" in typed.text()


def test_a_plain_engine_has_no_unknown_arguments(start: Start) -> None:
    """Somebody has looked at every argument of this release, and at what SGLang decides."""
    engine = start("dense")
    assert engine.ask("arguments in no table") == []
    assert engine.ask("other arguments") == {}


GONE = {
    "enable_gdn_replayssm_spec",
    *("torchao_config", "prefill_cp_mode", "dsa_prefill_cp_mode"),
    *("enable_prefill_context_parallel", "enable_dsa_prefill_context_parallel"),
}


@pytest.mark.skipif(VERSION not in (OLDEST, NEWEST), reason="a release between both")
def test_what_the_key_takes_from_arguments_is_there(start: Start) -> None:
    """The oldest and the newest release have all of it between them."""
    unknown = start("dense").ask("unknown arguments")
    assert not unknown & GONE if VERSION == OLDEST else unknown == GONE
