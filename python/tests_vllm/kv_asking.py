"""Engines with the KV connector and `kv_engine.Worker`, and what tests ask them. vLLM is imported
when the first engine starts."""

from __future__ import annotations

import gc
import pathlib
from typing import Any

import gpuwm.vllm

from .kv_steps import COUNT, LONGEST, expected

ROOM = 32  # blocks of a region


class Engine:
    """vLLM's `LLM` with the connector."""

    def __init__(self, model: pathlib.Path, worker: str, role: str, **arguments: Any) -> None:
        from vllm import LLM

        from . import kv_engine  # noqa: F401  (before vLLM looks at a model)

        options = {"region": "kv", "blocks": ROOM, **arguments.pop("options", {})}
        transfer = {
            "kv_connector": "GpuwmConnector",
            "kv_connector_module_path": "gpuwm.vllm.kv",
            "kv_role": role,
            "kv_load_failure_policy": arguments.pop("policy", "recompute"),
            "kv_connector_extra_config": options,
        }
        defaults = {
            "worker_cls": f"tests_vllm.kv_engine.{worker}",
            "distributed_executor_backend": "uni",
            "max_model_len": LONGEST,
            "hf_overrides": {"max_position_embeddings": LONGEST},
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            "async_scheduling": False,  # the rank has no such outputs
            "kv_transfer_config": transfer,
            "num_gpu_blocks_override": 64,
        }
        self.llm: Any = LLM(model=str(model), **{**defaults, **arguments})
        self.weights = "v2" if worker == "OtherWeights" else "v1"

    @property
    def rank(self) -> Any:
        """The worker of an engine that has no other process."""
        return self.llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker

    def ask_rank(self, method: str) -> Any:
        """All ranks answer the same."""
        answers = self.llm.collective_rpc(method)
        assert answers == answers[:1] * len(answers)
        return answers[0]

    def ask(self, *prompts: list[int], count: int = COUNT, **extra: Any) -> list[list[int]]:
        from vllm import SamplingParams

        parameters = SamplingParams(max_tokens=count, ignore_eos=True, detokenize=False)
        asked: Any = [{"prompt_token_ids": prompt, **extra} for prompt in prompts]
        answers = self.llm.generate(asked, parameters, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    def begin(self, prompt: list[int], count: int) -> None:
        """Adds a request; the caller steps."""
        from vllm import SamplingParams

        parameters = SamplingParams(max_tokens=count, ignore_eos=True, detokenize=False)
        self.llm.llm_engine.add_request("0", {"prompt_token_ids": prompt}, parameters)

    def computed(self, *prompts: list[int], **arguments: Any) -> int:
        """How many tokens it computes for these prompts. Checks the answers."""
        before = self.ask_rank("tokens_computed")
        count = arguments.get("count", COUNT)
        answers = self.ask(*prompts, **arguments)
        assert answers == [expected(prompt, count, self.weights) for prompt in prompts]
        return int(self.ask_rank("tokens_computed") - before)

    def forget(self) -> None:
        """Drops vLLM's own prefix cache."""
        assert self.llm.reset_prefix_cache()

    def switch(self, weights: str) -> None:
        assert gpuwm.vllm.switch(self.llm, f"m@{weights}").moved
        self.weights = weights

    def reset(self) -> None:
        assert self.llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True)

    def end(self) -> None:
        """A second call does nothing."""
        llm, self.llm = self.llm, None
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()


def forget_vllm() -> None:
    """Ends what vLLM leaves behind in this process."""
    from vllm.distributed import parallel_state

    gc.collect()
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()
