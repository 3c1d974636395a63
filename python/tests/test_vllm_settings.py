"""--model-loader-extra-config of vLLM's load format gpuwm: which keys, which values."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import gpuwm
from gpuwm.vllm import settings


def test_nothing_given_is_auto_with_vllms_own_loader_and_ones_own_versions() -> None:
    found = settings.parse({})
    assert (found.mode, found.ref, found.inner) == ("auto", None, "auto")
    assert found.owners == (os.getuid(), "operator")
    assert found.fallback is None


def test_every_key_arrives() -> None:
    found = settings.parse(
        {
            "ref": "llama@v1",
            "mode": "auto",
            "inner": "safetensors",
            "inner_config": {"enable_multithread_load": True},
            "fallback": "auto",
            "owner": [1000, "operator"],
            "engines": 4,
            "engine_overhead_gib": 1.5,
            "wait": 60,
            "socket": "/run/gpuwm/gpuwm.sock",
            "private": "*.bias",
        }
    )
    assert found.owners == (1000, "operator")
    assert found.wait == 60.0
    assert found.private == ("*.bias",)
    assert found.inner_config == {"enable_multithread_load": True}


WRONG: list[tuple[Any, list[str]]] = [
    (["ref"], ["list", "an object", "mode"]),
    ({"reff": "llama@v1"}, ["'reff'", 'did you mean "ref"', "fallback"]),
    ({1: 2}, ["1", "ref, mode"]),
    ({"mode": "lod"}, ['"mode"', "'lod'", '"auto", "load", "save" or "raw"']),
    ({"mode": ["auto"]}, ['"mode"', '"raw"']),
    ({"ref": 7}, ['"ref"', "7", "llama@v1"]),
    ({"ref": ""}, ['"ref"', "llama@v1"]),
    ({"ref": "a\0b"}, ['"ref"', "llama@v1"]),
    ({"mode": "load"}, ['"ref"', "missing", '"mode": "load"']),
    ({"mode": "raw"}, ['"ref"', "missing", "plain checkpoint"]),
    ({"ref": "llama"}, ['"ref"', "'llama'", "llama@v1"]),
    ({"ref": "llama", "mode": "save"}, ['"mode": "save"', "llama@v1"]),
    ({"inner": "gpuwm"}, ['"inner"', "reads the checkpoint"]),
    ({"inner": "bitsandbytes"}, ['"inner"', "quantisation"]),
    ({"inner": "gguf"}, ['"inner"', "GGUF"]),
    ({"inner": "sharded_state"}, ['"inner"', "sharded state"]),
    ({"inner": None}, ['"inner"', "text"]),
    ({"inner_config": "x"}, ['"inner_config"', "object"]),
    ({"fallback": True}, ['"fallback"', '"auto", or absent']),
    ({"fallback": "no"}, ['"fallback"', "'no'"]),
    ({"mode": "save", "fallback": "auto"}, ['"fallback"', '"mode": "save"']),
    ({"owner": "me"}, ['"owner"', "operator"]),
    ({"owner": []}, ['"owner"', "[1000"]),
    ({"owner": True}, ['"owner"', "[1000"]),
    ({"wait": -1}, ['"wait"', "-1", "seconds"]),
    ({"wait": True}, ['"wait"', "seconds"]),
    ({"wait": float("nan")}, ['"wait"', "seconds"]),
    ({"socket": 3}, ['"socket"', "gpuwm.sock"]),
    ({"private": [1]}, ['"private"', "pattern"]),
    ({"private": ""}, ['"private"', "pattern"]),
    ({"engines": 0}, ['"engines"', "1 to"]),
    ({"engine_overhead_gib": -1}, ['"engine_overhead_gib"', "GiB"]),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named_with_what_is_allowed(given: Any, words: list[str]) -> None:
    with pytest.raises(gpuwm.Invalid) as caught:
        settings.parse(given)
    for word in words:
        assert word in str(caught.value)


def test_load_takes_a_model_without_a_tag() -> None:
    assert settings.parse({"ref": "llama", "mode": "load"}).ref == "llama"


def test_importing_the_package_imports_neither_vllm_nor_torch() -> None:
    script = (
        "import sys, gpuwm.vllm, gpuwm.vllm.settings\n"
        "print(sorted({'vllm', 'torch', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
