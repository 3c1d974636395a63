"""A model that load format gpuwm leaves is the one that SGLang's own loader leaves: names, classes,
shapes, strides, ties, plain values and the SHA-256 of every tensor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Daemon

from tests_engines.comparing import differences
from tests_engines.starting import Start

# The one kind of rotary embedding that SGLang has for MLA on a CPU.
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}
YARN["original_max_position_embeddings"] = 64
# What SGLang asks of a configuration and transformers' class for it lacks.
LATENT = {"rope_parameters": YARN, "moe_layer_freq": 1, "scoring_func": "softmax"}
# kind of model, and how the engine is started
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "tied": ("tied", {}),
    "tied, with a head": ("redundant", {}),
    "tied, with another head": ("contradicting", {}),
    "experts": ("experts", {}),
    "latent": ("latent", {"json_model_override_args": json.dumps(LATENT)}),
    "fp8 checkpoint": ("fp8", {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_builder_and_others_have_what_sglang_has(daemon: Daemon, start: Start, name: str) -> None:
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
