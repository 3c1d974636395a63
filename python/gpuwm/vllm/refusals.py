"""The options that load format gpuwm refuses, by name, before anything is loaded."""

from __future__ import annotations

from typing import Any

from .. import errors

# Quantisation methods whose result is not a module: state lies beside the parameters, or the
# parameters have no shape before the checkpoint is read.
REFUSED_METHODS = {
    "bitsandbytes": "bitsandbytes keeps the state of its quantisation outside of the module",
    "gguf": "a GGUF checkpoint becomes tensors of its own kind while it is loaded",
}
WEIGHT_TRANSFER = "gpuwm"  # the only backend of weight transfer that does not write into weights


def check(vllm_config: Any, model_config: Any) -> None:
    """Raises Unsupported, which names the first option that can't work with shared, read-only
    weights."""
    for what, why, remedy in _refused(vllm_config, model_config):
        raise errors.Unsupported(f"load format gpuwm refuses {what}: {why}", remedy)


def _refused(vllm_config: Any, model_config: Any) -> Any:
    parallel = vllm_config.parallel_config
    if parallel.enable_eplb:
        yield (
            "--enable-eplb",
            "it moves experts between ranks by writing into the weights, which are read-only",
            "start the engine without it",
        )
    if getattr(parallel, "enable_elastic_ep", False):
        yield (
            "--enable-elastic-ep",
            "it writes into the weights as ranks come and go, and the weights are read-only",
            "start the engine without it",
        )
    if getattr(parallel, "nnodes", 1) > 1:
        yield (
            f"--nnodes {parallel.nnodes}",
            "the ranks of an engine share one version, and a gpuwmd holds the memory of one "
            "machine only",
            "start the engine on one machine",
        )
    yield from _offloading(vllm_config)
    yield from _other_memory(vllm_config)
    method = model_config.quantization
    if method in REFUSED_METHODS:
        yield (
            f"--quantization {method}",
            REFUSED_METHODS[method],
            "start the engine with --load-format auto, or with another quantisation",
        )


def _offloading(vllm_config: Any) -> Any:
    offload = getattr(vllm_config, "offload_config", None)
    uva = getattr(getattr(offload, "uva", None), "cpu_offload_gb", 0)
    older = getattr(vllm_config.cache_config, "cpu_offload_gb", 0)
    groups = getattr(getattr(offload, "prefetch", None), "offload_group_size", 0)
    for flag, value in (("--cpu-offload-gb", uva or older), ("--offload-group-size", groups)):
        if value:
            yield (
                f"{flag} {value}",
                "offloading moves weights to host memory, and the weights that gpuwm holds stay "
                "where they are",
                "start the engine without it",
            )


def _other_memory(vllm_config: Any) -> Any:
    transfer = getattr(vllm_config, "weight_transfer_config", None)
    if transfer is not None and transfer.backend != WEIGHT_TRANSFER:
        yield (
            f"weight transfer by {transfer.backend}",
            "it writes into the weights, which are read-only",
            f'use the backend "{WEIGHT_TRANSFER}", or start the engine without --weight-transfer-'
            "config",
        )
    device = vllm_config.load_config.device
    target = vllm_config.device_config.device
    if device is not None and str(device) != str(target):
        yield (
            f'a load device of its own ("{device}")',
            f"the engine's device is {target}, and weights are shared on the device that uses them",
            "leave the load device out",
        )
