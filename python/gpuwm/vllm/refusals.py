"""The options of vLLM that load format gpuwm refuses, by name, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..engines import refusals as shared
from ..engines.refusals import REFUSED_METHODS, Refused

__all__ = ["REFUSED_METHODS", "WEIGHT_TRANSFER", "check"]
WEIGHT_TRANSFER = "gpuwm"  # the only backend of weight transfer that does not write into weights


def check(vllm_config: Any, model_config: Any) -> None:
    """Raises Unsupported, which names the first option that can't work with shared, read-only
    weights."""
    shared.check(_refused(vllm_config, model_config))


def _refused(vllm_config: Any, model_config: Any) -> Iterator[Refused]:
    parallel = vllm_config.parallel_config
    if parallel.enable_eplb:
        yield Refused(
            "--enable-eplb",
            "it moves experts between ranks by writing into the weights, which are read-only",
        )
    if getattr(parallel, "enable_elastic_ep", False):
        yield Refused(
            "--enable-elastic-ep",
            "it writes into the weights as ranks come and go, and the weights are read-only",
        )
    yield from shared.several_machines("--nnodes", getattr(parallel, "nnodes", 1))
    yield from _offloading(vllm_config)
    yield from _other_memory(vllm_config)
    yield from shared.quantization(model_config.quantization)


def _offloading(vllm_config: Any) -> Iterator[Refused]:
    offload = getattr(vllm_config, "offload_config", None)
    uva = getattr(getattr(offload, "uva", None), "cpu_offload_gb", 0)
    older = getattr(vllm_config.cache_config, "cpu_offload_gb", 0)
    groups = getattr(getattr(offload, "prefetch", None), "offload_group_size", 0)
    for flag, value in (("--cpu-offload-gb", uva or older), ("--offload-group-size", groups)):
        if value:
            yield Refused(f"{flag} {value}", shared.OFFLOADS)


def _other_memory(vllm_config: Any) -> Iterator[Refused]:
    transfer = getattr(vllm_config, "weight_transfer_config", None)
    if transfer is not None and transfer.backend != WEIGHT_TRANSFER:
        yield Refused(
            f"weight transfer by {transfer.backend}",
            "it writes into the weights, which are read-only",
            f'use the backend "{WEIGHT_TRANSFER}", or start the engine without --weight-transfer-'
            "config",
        )
    device = vllm_config.load_config.device
    target = vllm_config.device_config.device
    if device is not None and str(device) != str(target):
        yield Refused(
            f'a load device of its own ("{device}")',
            f"the engine's device is {target}, and weights are shared on the device that uses them",
            "leave the load device out",
        )
