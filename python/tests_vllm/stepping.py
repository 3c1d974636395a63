"""A rank of vLLM that computes nothing, below a real scheduler."""

from __future__ import annotations

import time
from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from .steps import BLOCK, END, STEP_S, other

MEMORY = 1 << 26  # bytes: several requests of LONGEST tokens


class Worker(WorkerBase):  # type: ignore[misc]
    """For vLLM's `worker_cls`."""

    version = 1
    ending = False
    asleep = False
    refuses = 0  # how many sleeps and wakes it refuses

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.emptied: list[str] = []

    # ---- what vLLM calls ----

    def init_device(self) -> None:
        pass

    def load_model(self, **_: Any) -> None:
        pass

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        size = {"num_kv_heads": 1, "head_size": 16, "dtype": torch.float32}
        return {"layer": FullAttentionSpec(block_size=BLOCK, **size)}

    def determine_available_memory(self) -> int:
        return MEMORY

    def initialize_from_config(self, config: Any) -> None:
        pass

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(0.0, 0.0)

    def execute_model(self, step: Any) -> ModelRunnerOutput:
        """One token for each request: its prompt fits into one step."""
        time.sleep(STEP_S)
        requests = list(step.num_scheduled_tokens)
        token = END if self.ending else self.version
        return ModelRunnerOutput(
            req_ids=requests,
            req_id_to_index={request: at for at, request in enumerate(requests)},
            sampled_token_ids=[[token] for _ in requests],
        )

    def take_draft_token_ids(self) -> None:
        return None

    def reset_mm_cache(self) -> None:
        self.emptied.append("mm")

    def reset_encoder_cache(self) -> None:
        self.emptied.append("encoder")

    def shutdown(self) -> None:
        pass

    def sleep(self, level: int = 1) -> None:
        self._refuse()
        self.asleep = True

    def wake_up(self, tags: Any = None) -> None:
        self._refuse()
        self.asleep = False

    def _refuse(self) -> None:
        if self.refuses:
            self.refuses -= 1
            raise RuntimeError("as the test wants it")

    # ---- what an operator calls ----

    def gpuwm_asleep(self) -> dict[str, Any]:
        return {"rank": 0, "asleep": self.asleep, "device": "host"}

    # ---- what a switch calls ----

    def gpuwm_prepare(self, *_: str) -> dict[str, Any]:
        return {"rank": 0}

    def gpuwm_prepared(self, token: str) -> dict[str, Any]:
        return {**said(other(self.version)), "before": said(self.version), "pending": False}

    def gpuwm_commit(self, token: str) -> dict[str, Any]:
        self.version, self.ending = other(self.version), False
        return said(self.version)

    def gpuwm_settle(self, token: str, outcome: str) -> dict[str, Any]:
        return said(self.version)

    # ---- what a test calls ----

    def begin(self) -> int:
        """The version that the rank is on."""
        self.ending = False
        self.emptied.clear()
        return self.version

    def refuse(self) -> None:
        self.refuses += 1

    def end_requests(self) -> None:
        """Every step ends all its requests, until the rank moves to the other version."""
        self.ending = True

    def has_emptied(self) -> list[str]:
        return self.emptied


def said(version: int) -> dict[str, Any]:
    return {"rank": 0, "version": f"m@v{version}", "id": str(version)}
