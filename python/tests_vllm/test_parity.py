"""A model that load format gpuwm leaves is the one that vLLM's own loader leaves: names, classes,
shapes, strides, ties, plain values and the SHA-256 of every tensor."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Daemon

from tests_engines.comparing import differences
from tests_engines.starting import Start

# kind of model, and how the engine is started
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "tied": ("tied", {}),
    "tied, with a head": ("redundant", {}),
    "tied, with another head": ("contradicting", {}),
    "experts": ("experts", {}),
    "latent": ("latent", {}),
    "dense as fp8": ("dense", {"quantization": "fp8"}),
    "fp8 checkpoint": ("fp8", {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_builder_and_others_have_what_vllm_has(daemon: Daemon, start: Start, name: str) -> None:
    kind, arguments = MODELS[name]
    ref = name.replace(", ", "-").replace(" ", "-") + "@v1"
    own = start(kind, **arguments)
    builder = start(kind, load_format="gpuwm", extra={"ref": ref}, **arguments)
    assert differences(own, builder) == []
    other = start(kind, load_format="gpuwm", extra={"ref": ref, "mode": "load"}, **arguments)
    assert differences(own, other) == []
    (row,) = daemon.admin.list(ref.partition("@")[0])["versions"]
    assert (row["state"], row["leases"]) == ("ready", 2)
    for engine in (builder, other):
        assert engine.ask("shared"), "no parameter lies in the version"
    assert "had other values than" not in other.text()
    for engine in (builder, other):
        assert "gets other memory" not in engine.text()  # what the loader itself holds is no alias


# compilation_config is no part of a version's key: how an engine computes is its own choice
COMPUTING: dict[str, dict[str, Any]] = {
    "other operators": {"compilation_config": {"custom_ops": ["none"]}},
    "compiled": {"enforce_eager": False},
}


@pytest.mark.parametrize("how", COMPUTING)
def test_engines_that_compute_otherwise_share_a_version(
    daemon: Daemon, start: Start, how: str
) -> None:
    ref = how.replace(" ", "-") + "@v1"
    builder = start("dense", load_format="gpuwm", extra={"ref": ref})
    assert builder.ask("shared")
    own = start("dense", **COMPUTING[how])
    extra = {"ref": ref, "mode": "load"}
    other = start("dense", load_format="gpuwm", extra=extra, **COMPUTING[how])
    assert differences(own, other) == []


def test_a_setting_that_the_key_lacks_is_named(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "lacking@v1"}
    start("dense", load_format="gpuwm", extra=extra).loaded()
    # vLLM's layers read it, and it changes nothing on a CPU.
    other = start(
        "dense", load_format="gpuwm", extra=extra, changed={"cache_config.sliding_window": 32}
    )
    other.loaded()
    assert "had other values than lacking@v1 in model.layers.0.self_attn.attn" in other.text()
