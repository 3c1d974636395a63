"""The options of vLLM that load format gpuwm refuses, by name, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import errors
from ..engines import refusals as shared
from ..engines.refusals import REFUSED_METHODS, Refused
from . import memory, releases

__all__ = [
    "REFUSED_METHODS",
    "SLEEP_BACKEND",
    "WEIGHT_TRANSFER",
    "check",
    "check_plan",
    "check_sharing",
    "check_sleep",
]

SLEEP_BACKEND = "gpuwm"  # as in sleep_mode, which imports vLLM
WEIGHT_TRANSFER = "gpuwm"  # the only backend of weight transfer that does not write into weights


def check(vllm_config: Any, model_config: Any) -> None:
    """Raises Unsupported, which names the first option that can't work with shared, read-only
    weights."""
    shared.check(_refused(vllm_config, model_config))


def check_sharing(extra_config: Any, worker_counts: bool) -> None:
    """Raises Unsupported if engines are to share a GPU, and nothing sees to that. extra_config:
    --model-loader-extra-config. worker_counts: whether gpuwm.vllm.Worker runs this process."""
    given = extra_config if isinstance(extra_config, Mapping) else {}
    if worker_counts:
        return
    if memory.STANDBY_KEY in given:
        raise errors.Unsupported(
            f'"{memory.STANDBY_KEY}" in --model-loader-extra-config needs gpuwm.vllm.Worker',
            "start the engine with python -m gpuwm.vllm standby",
        )
    several = given.get(memory.ENGINES_KEY, 1) != 1
    if (several or memory.OVERHEAD_KEY in given) and not releases.asks_loader():
        key = memory.ENGINES_KEY if several else memory.OVERHEAD_KEY
        raise errors.Unsupported(
            f'"{key}" in --model-loader-extra-config has no effect with the worker of vLLM '
            f"{releases.version()}",
            "add --worker-cls gpuwm.vllm.Worker; vLLM 0.32 and newer need no worker for that",
        )


def check_sleep(model_config: Any, worker_counts: bool) -> None:
    """Raises Unsupported for an engine that could not sleep as its options say. model_config: of
    the target. worker_counts: whether gpuwm.vllm.Worker runs this process."""
    if not (model_config.enable_sleep_mode and model_config.sleep_mode_backend == SLEEP_BACKEND):
        return
    if not worker_counts:
        raise errors.Unsupported(
            f"--sleep-mode-backend {SLEEP_BACKEND} needs gpuwm.vllm.Worker: vLLM's own worker "
            "fails a sleep in which another engine wakes on its GPU, and can't serve then",
            "add --worker-cls gpuwm.vllm.Worker",
        )
    if getattr(model_config, "sleep_mode_offload_cudagraph", False):
        raise errors.Unsupported(
            "--sleep-mode-offload-cudagraph has no effect with --sleep-mode-backend "
            f"{SLEEP_BACKEND}: vLLM looks for the name of its own backend",
            "leave --sleep-mode-backend out: gpuwm.vllm.Worker parks the weights without it",
        )


def check_plan(how: memory.Sharing) -> None:
    """Raises Unsupported if vLLM is to take the size of its KV cache from an earlier start, while
    engines share the GPU: that start may have had another part of it."""
    import vllm.envs as envs

    if getattr(envs, "VLLM_ENABLE_STARTUP_PLAN", False) and (how.engines > 1 or how.standby):
        raise errors.Unsupported(
            "VLLM_ENABLE_STARTUP_PLAN keeps the size of a KV cache, and does not know how many "
            "engines share the GPU",
            "unset it",
        )


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
    preserved = getattr(model_config, "sleep_preserve_parameter_names", None)
    if preserved:
        yield Refused(
            f"--sleep-preserve-parameter-names {' '.join(preserved)}",
            "after sleep mode vLLM would write these weights back, and weights are read-only",
            "leave it out: weights that gpuwm holds are the same after a sleep",
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
