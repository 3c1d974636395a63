"""Lets one process stand for one rank of an engine, for as long as it builds and loads that rank's
model.

A trainer builds the models of all ranks, one after the other, and has process groups of its own. So
no group is made here: vLLM finds groups that say which rank this process stands for, and that can't
send anything. A model that communicates while it loads fails.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from .. import errors

_numbers = itertools.count()
# vLLM's variables, by the ranks that the group has: all ranks of the engine, or only this one.
_OF_ALL = ("_WORLD", "_INNER_DP_WORLD", "_TP", "_EP")
_OF_ONE = ("_PP", "_DP", "_DCP", "_PCP")


def check(vllm_config: Any) -> None:
    """Raises Unsupported, which names the first kind of parallelism besides that of tensors and
    experts."""
    parallel = vllm_config.parallel_config
    for field in (
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        size = getattr(parallel, field, 1)
        if size > 1:
            raise errors.Unsupported(
                f"gpuwm.vllm.publisher refuses {field}={size}: it knows tensor and expert "
                "parallelism only",
                "publish versions by an engine (load format gpuwm)",
            )


@contextlib.contextmanager
def standing_for(vllm_config: Any, rank: int) -> Iterator[None]:
    """Inside, vLLM takes this process for that rank of the engine. Nobody else may use vLLM in this
    process meanwhile."""
    from vllm.distributed import parallel_state

    parallel = vllm_config.parallel_config
    everyone = range(parallel.world_size)
    groups = {name: _group(everyone, rank) for name in _OF_ALL}
    groups |= {name: _group([rank], rank) for name in _OF_ONE}
    before = {name: vars(parallel_state)[name] for name in groups if name in vars(parallel_state)}
    rank_before = parallel.rank
    parallel.rank = rank
    vars(parallel_state).update((name, groups[name]) for name in before)
    try:
        yield
    finally:
        vars(parallel_state).update(before)
        parallel.rank = rank_before


def _group(ranks: Sequence[int], rank: int) -> Any:
    """An object of vLLM's class: modules keep it, and are compared by it."""
    import torch
    from vllm.distributed.parallel_state import GroupCoordinator
    from vllm.platforms import current_platform

    kind = current_platform.device_type
    group = GroupCoordinator.__new__(GroupCoordinator)
    group.unique_name = f"gpuwm:{next(_numbers)}"
    group.rank, group.ranks, group.world_size = rank, list(ranks), len(ranks)
    group.rank_in_group = group.ranks.index(rank)
    group.group_ranks = [group.ranks]
    group.local_rank = group.device_index = rank
    group.device = torch.device(kind) if kind == "cpu" else torch.device(kind, _current())
    # It knows its rank and size, and has no backend: an attempt to send raises an error.
    make: Any = torch.distributed.ProcessGroup
    nobody = make(group.rank_in_group, group.world_size)
    group.cpu_group = group.device_group = nobody
    group.torch_distributed_backend = "none"
    group.use_device_communicator = False
    group.device_communicator = group.mq_broadcaster = None
    group.use_custom_op_call = group.use_cpu_custom_send_recv = False
    return group


def _current() -> int:
    import torch

    return int(torch.accelerator.current_device_index())
