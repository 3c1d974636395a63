"""The options of SGLang that load format gpuwm refuses, by name, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..engines import refusals as shared
from ..engines.refusals import Refused

WRITES = "it writes into the weights, which are read-only"
# Arguments of SGLang that are on if they have any value.
REFUSED: dict[str, Refused] = {
    "enable_eplb": Refused("--enable-eplb", WRITES),
    "elastic_ep_backend": Refused("--elastic-ep-backend", WRITES),
    "enable_elastic_expert_backup": Refused("--enable-elastic-expert-backup", WRITES),
    "checkpoint_engine_wait_weights_before_ready": Refused(
        "--checkpoint-engine-wait-weights-before-ready", WRITES
    ),
    "torchao_config": Refused(
        "--torchao-config",
        "SGLang replaces the weights by quantised ones after each load, in memory of each engine",
        "start the engine with --quantization",
    ),
    "kt_weight_path": Refused(
        "--kt-weight-path", "KTransformers keeps experts in host memory, outside of the module"
    ),
    "cpu_offload_gb": Refused("--cpu-offload-gb", shared.OFFLOADS),
    "enable_memory_saver": Refused(
        "--enable-memory-saver",
        "it frees the memory of weights while an engine pauses and expects new weights afterwards, "
        "and the weights that gpuwm holds stay as they are",
    ),
}


def check(server_args: Any, model_config: Any) -> None:
    """Raises Unsupported, which names the first option that can't work with shared, read-only
    weights."""
    shared.check(_refused(server_args, model_config))


def _refused(server_args: Any, model_config: Any) -> Iterator[Refused]:
    for name, refused in REFUSED.items():
        if getattr(server_args, name, None):
            yield refused
    if getattr(server_args, "offload_group_size", -1) > 0:
        yield Refused(f"--offload-group-size {server_args.offload_group_size}", shared.OFFLOADS)
    yield from shared.several_machines("--nnodes", server_args.nnodes)
    if model_config.is_draft_model and server_args.pp_size > 1:
        yield Refused(
            "a draft model with --pp-size above 1",
            "SGLang has no process group of the ranks that load it",
            "start the engine without one of both, or with --speculative-draft-load-format auto",
        )
    yield from shared.quantization(model_config.quantization)
