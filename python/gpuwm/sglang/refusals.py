"""The options of SGLang that load format gpuwm refuses, by name, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import errors
from ..vllm.refusals import REFUSED_METHODS

WITHOUT = "start the engine without it"
WRITES = "it writes into the weights, which are read-only"
# Arguments of SGLang that are on if they have any value: the flag, why it is refused, and the
# remedy.
REFUSED: dict[str, tuple[str, str, str]] = {
    "enable_eplb": ("--enable-eplb", WRITES, WITHOUT),
    "elastic_ep_backend": ("--elastic-ep-backend", WRITES, WITHOUT),
    "enable_elastic_expert_backup": ("--enable-elastic-expert-backup", WRITES, WITHOUT),
    "checkpoint_engine_wait_weights_before_ready": (
        "--checkpoint-engine-wait-weights-before-ready",
        WRITES,
        WITHOUT,
    ),
    "torchao_config": (
        "--torchao-config",
        "SGLang replaces the weights by quantised ones after each load, in memory of each engine",
        "start the engine with --quantization",
    ),
    "kt_weight_path": (
        "--kt-weight-path",
        "KTransformers keeps experts in host memory, outside of the module",
        WITHOUT,
    ),
    "cpu_offload_gb": (
        "--cpu-offload-gb",
        "offloading moves weights to host memory, and the weights that gpuwm holds stay where they "
        "are",
        WITHOUT,
    ),
    "enable_memory_saver": (
        "--enable-memory-saver",
        "it frees the memory of weights while an engine pauses and expects new weights afterwards, "
        "and the weights that gpuwm holds stay as they are",
        WITHOUT,
    ),
}


def check(server_args: Any, model_config: Any) -> None:
    """Raises Unsupported, which names the first option that can't work with shared, read-only
    weights."""
    for what, why, remedy in _refused(server_args, model_config):
        raise errors.Unsupported(f"load format gpuwm refuses {what}: {why}", remedy)


def _refused(server_args: Any, model_config: Any) -> Iterator[tuple[str, str, str]]:
    for name, refused in REFUSED.items():
        if getattr(server_args, name, None):
            yield refused
    if getattr(server_args, "offload_group_size", -1) > 0:
        _, why, remedy = REFUSED["cpu_offload_gb"]
        yield f"--offload-group-size {server_args.offload_group_size}", why, remedy
    if server_args.nnodes > 1:
        yield (
            f"--nnodes {server_args.nnodes}",
            "the ranks of an engine share one version, and a gpuwmd holds the memory of one "
            "machine only",
            "start the engine on one machine",
        )
    if model_config.is_draft_model and server_args.pp_size > 1:
        yield (
            "a draft model with --pp-size above 1",
            "SGLang has no process group of the ranks that load it",
            "start the engine without one of both, or with --speculative-draft-load-format auto",
        )
    method = model_config.quantization
    if method in REFUSED_METHODS:
        yield (
            f"--quantization {method}",
            REFUSED_METHODS[method],
            "start the engine with --load-format auto, or with another quantisation",
        )
