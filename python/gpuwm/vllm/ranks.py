"""The ranks of one engine of vLLM."""

from __future__ import annotations

from typing import Any

from .. import errors
from ..engines.ranks import Ranks


def ranks(vllm_config: Any, draft: bool) -> Ranks:
    """The ranks that load this model, the target or the draft. Raises Unsupported if vLLM has no
    process group for them."""
    parallel = vllm_config.parallel_config
    if parallel.world_size_across_dp == 1:
        return Ranks()
    from vllm.distributed import parallel_state

    if not draft or parallel.pipeline_parallel_size == 1:
        return Ranks(parallel_state.get_world_group())
    if parallel.data_parallel_size > 1:  # with experts: each replica has experts of its own
        raise errors.Unsupported(
            "a draft model with pipeline parallelism and data parallelism of experts can't be "
            "shared: vLLM has no process group of the ranks that load it",
            'start the engine without one of the three, or load the draft with "draft_load_config"',
        )
    # Only the last stage of the pipeline has a draft model.
    return Ranks(parallel_state.get_tp_group())
