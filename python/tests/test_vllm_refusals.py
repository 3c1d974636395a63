"""What vLLM's load format gpuwm refuses by name, before anything is loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import gpuwm
from gpuwm.vllm import refusals


def config(**changed: Any) -> Any:
    found = SimpleNamespace(
        parallel_config=SimpleNamespace(enable_eplb=False, enable_elastic_ep=False, nnodes=1),
        offload_config=SimpleNamespace(
            uva=SimpleNamespace(cpu_offload_gb=0), prefetch=SimpleNamespace(offload_group_size=0)
        ),
        cache_config=SimpleNamespace(),
        weight_transfer_config=None,
        load_config=SimpleNamespace(device=None),
        device_config=SimpleNamespace(device="cuda"),
        lora_config=SimpleNamespace(max_loras=4),
    )
    for path, value in changed.items():
        *parts, leaf = path.split("__")
        holder: Any = found
        for part in parts:
            holder = getattr(holder, part)
        setattr(holder, leaf, value)
    return found


def model(quantization: str | None = None) -> Any:
    return SimpleNamespace(quantization=quantization)


def test_a_plain_engine_with_lora_adapters_is_not_refused() -> None:
    refusals.check(config(), model("fp8"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parallel_config__enable_eplb": True}, ["--enable-eplb", "read-only", "without it"]),
        ({"parallel_config__enable_elastic_ep": True}, ["--enable-elastic-ep", "read-only"]),
        ({"parallel_config__nnodes": 2}, ["--nnodes 2", "one machine"]),
        ({"offload_config__uva__cpu_offload_gb": 4}, ["--cpu-offload-gb 4", "without it"]),
        ({"offload_config__prefetch__offload_group_size": 8}, ["--offload-group-size 8"]),
        ({"cache_config__cpu_offload_gb": 2}, ["--cpu-offload-gb 2"]),
        (
            {"weight_transfer_config": SimpleNamespace(backend="nccl")},
            ["weight transfer by nccl", "read-only"],
        ),
        ({"load_config__device": "cpu"}, ['"cpu"', "cuda", "leave the load device out"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_writes_into_weights_is_refused_by_name(
    changed: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(gpuwm.Unsupported) as caught:
        refusals.check(config(**changed), model())
    for word in ("load format gpuwm refuses", *words):
        assert word in str(caught.value)


def test_gpuwms_own_weight_transfer_is_not_refused() -> None:
    refusals.check(config(weight_transfer_config=SimpleNamespace(backend="gpuwm")), model())


@pytest.mark.parametrize("method", ["bitsandbytes", "gguf"])
def test_a_quantisation_whose_result_is_no_module_is_refused(method: str) -> None:
    with pytest.raises(gpuwm.Unsupported, match=f"--quantization {method}"):
        refusals.check(config(), model(method))
