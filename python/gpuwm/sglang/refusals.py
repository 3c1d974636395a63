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
    "enable_paged_experts": Refused("--enable-paged-experts", shared.OFFLOADS),
    "ple_offload_embedding": Refused(
        "--ple-offload-embedding",
        shared.OFFLOADS,
        "start the engine with --no-ple-offload-embedding",
    ),
    "remote_instance_weight_loader_start_seed_via_transfer_engine": Refused(
        "--remote-instance-weight-loader-start-seed-via-transfer-engine",
        "it registers the memory of the weights for transfers of other machines, which may write "
        "there",
    ),
    "enable_memory_saver": Refused(
        "--enable-memory-saver",
        "it frees the memory of weights while an engine pauses and expects new weights afterwards, "
        "and the weights that gpuwm holds stay as they are",
    ),
}


def check_start(server_args: Any) -> None:
    """Raises Unsupported if SGLang does not let the loader load the model at once. Call it when
    SGLang makes the loader."""
    mode = getattr(server_args, "startup_weight_load_mode", "serial")
    if mode != "serial":
        shared.check(
            [
                Refused(
                    f"--startup-weight-load-mode {mode}",
                    "SGLang fills the weights in when it has captured its graphs, and the weights "
                    "that gpuwm holds are read-only",
                )
            ]
        )


def check_load_config(load_config: Any) -> None:
    """Raises Unsupported if SGLang's own cache of weights would take the place of the loader. Call
    it when SGLang chooses the loader."""
    mode = getattr(load_config, "weight_cache_mode", "off")
    if mode != "off":
        why = "SGLang's own cache of weights and gpuwm can't hold the same weights"
        shared.check([Refused(f"--weight-cache-mode {mode}", why)])


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
    if getattr(server_args, "dwdp_size", 1) > 1:
        yield Refused(
            f"--dwdp-size {server_args.dwdp_size}",
            "SGLang moves experts from GPU to GPU into memory of each engine",
        )
    yield from shared.several_machines("--nnodes", server_args.nnodes)
    if model_config.is_draft_model and server_args.pp_size > 1:
        yield Refused(
            "a draft model with --pp-size above 1",
            "SGLang has no process group of the ranks that load it",
            "start the engine without one of both, or with --speculative-draft-load-format auto",
        )
    yield from shared.quantization(model_config.quantization)
