"""The worker of ranks that share the first GPU: the option --one-card names it to vLLM.

NCCL refuses two ranks on one GPU of one host. Here each rank says that it is a host of its own
($NCCL_HOSTID), so NCCL takes its network transport, over TCP on the loopback. The GPU runs one
rank's kernels at a time, and each collective waits for the other rank's turn: what the ranks
compute is right, and their times say nothing about two GPUs."""

from __future__ import annotations

import os

from gpuwm.vllm import worker


class Worker(worker.Worker):
    """gpuwm's worker, on the first GPU whatever its rank."""

    def init_device(self) -> None:
        os.environ["NCCL_HOSTID"] = f"rank-{self.rank}"
        self.local_rank = 0
        super().init_device()
