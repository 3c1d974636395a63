"""The ranks of one engine, which build a version together or not at all."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Protocol

from .. import errors

# A rank that failed tells the others why before it raises. They may hang in a collective operation
# of the step that failed, so that rank does not wait for them for longer: the executor of vLLM ends
# them when the rank's process has ended.
TELL_SECONDS = 10.0


class Coordinator(Protocol):
    """What this module needs of vLLM's GroupCoordinator: its public attributes."""

    rank_in_group: int
    world_size: int
    ranks: list[int]
    cpu_group: Any


class Ranks:
    """rank: of this process among `world`. Every method is collective: all ranks call it in the
    same order, from one thread each. With one rank nothing is sent."""

    def __init__(self, coordinator: Coordinator | None = None) -> None:
        self._coordinator = coordinator
        self.rank = 0 if coordinator is None else coordinator.rank_in_group
        self.world = 1 if coordinator is None else coordinator.world_size

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order. What torch.distributed raises."""
        if self.world == 1:
            return [value]
        import torch.distributed

        assert self._coordinator is not None
        found: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(found, value, group=self._coordinator.cpu_group)
        return found

    def first(self, value: Any = None) -> Any:
        """The value of rank 0, which alone has to give one. What torch.distributed raises."""
        if self.world == 1:
            return value
        import torch.distributed

        assert self._coordinator is not None
        sent = [value]
        torch.distributed.broadcast_object_list(
            sent, src=self._coordinator.ranks[0], group=self._coordinator.cpu_group
        )
        return sent[0]

    def agree(self, what: str, error: BaseException | None = None) -> None:
        """Returns if no rank has an error. Raises `error` if this rank has one; else a gpuwm.Error
        that names the first rank that has one.

        what: what the ranks were doing, for that message: "attach to llama@v1".
        """
        if self.world == 1:
            if error is not None:
                raise error
            return
        if error is not None:
            self._tell(f"{type(error).__name__}: {error}")
            raise error
        for rank, text in enumerate(self.gather(None)):
            if text is not None:
                raise errors.Error(
                    f"rank {rank} of this engine could not {what}: {text}",
                    "so that no rank goes on",
                )

    def _tell(self, text: str) -> None:
        teller = threading.Thread(
            target=self._gather_quietly, args=(text,), name="gpuwm tell", daemon=True
        )
        teller.start()
        teller.join(TELL_SECONDS)

    def _gather_quietly(self, text: str) -> None:
        with contextlib.suppress(RuntimeError):  # of a rank that has ended
            self.gather(text)


def ranks(vllm_config: Any, draft: bool) -> Ranks:
    """The ranks that load this model, which is the target or the draft. Unsupported: a set of ranks
    for which vLLM has no process group."""
    parallel = vllm_config.parallel_config
    if parallel.world_size_across_dp == 1:
        return Ranks()
    from vllm.distributed import parallel_state

    if not draft or parallel.pipeline_parallel_size == 1:
        return Ranks(parallel_state.get_world_group())
    if parallel.data_parallel_size > 1:  # experts: each replica has experts of its own
        raise errors.Unsupported(
            "a draft model with pipeline parallelism and data parallelism of experts can't be "
            "shared: vLLM has no process group of the ranks that load it",
            'start the engine without one of the three, or load the draft with "draft_load_config"',
        )
    # Only the last stage of the pipeline has a draft model.
    return Ranks(parallel_state.get_tp_group())
