"""A whole engine of vLLM in this process, with a model whose KV can be checked.

The state of a token is a number that covers all tokens before it and the weights: the model
computes it from the state of the token before, which it reads from the KV cache. It writes the
state into each layer's cache, differently in each place, and checks all places when it reads. The
next token follows from the state. So a wrong byte of KV gives a wrong token, or fails.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any, cast

import torch
import vllm.model_executor.models.registry as registry
from kv_blocks import Blocks
from vllm.config import set_current_vllm_config
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.gpu.kv_connector import ActiveKVConnector
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from gpuwm._c.handle import TensorInfo
from gpuwm.vllm import keys, model_loader
from gpuwm.vllm.kv import engine as reading

from .kv_steps import BLOCK, HEADS, LAYERS, SIZE, TOKENS, state_after

# vLLM looks at a model's class in a process of its own, which would import everything again.
registry._run_in_subprocess = lambda look: look()
# The model has no record: it is no version of gpuwmd's.
reading._values = lambda mapping: ""


@dataclasses.dataclass
class _Request:
    tokens: list[int]
    prompt: int
    blocks: list[int]
    computed: int


class Worker(WorkerBase):  # type: ignore[misc]
    """For vLLM's `worker_cls`."""

    weights = "v1"
    managed = True  # whether the weights are gpuwm's
    private: tuple[str, ...] = ()
    dtype = torch.float32
    block = BLOCK
    caches_blocks = 0  # the number of vLLM's blocks
    computed = 0  # tokens

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.requests: dict[str, _Request] = {}
        self.loads: list[int] = []  # blocks, in each step
        self.resumed = 0  # requests, after a preemption

    # ---- what vLLM calls ----

    def init_device(self) -> None:
        if not torch.distributed.is_initialized():
            ranks = self.vllm_config.parallel_config.tensor_parallel_size
            meet = self.distributed_init_method
            with set_current_vllm_config(self.vllm_config):
                init_distributed_environment(ranks, self.rank, meet, self.local_rank, "gloo")
                ensure_model_parallel_initialized(ranks, 1)

    def load_model(self, **_: Any) -> None:
        self.model = torch.nn.ModuleList(torch.nn.Identity() for _ in range(LAYERS))
        for name, layer in zip(self._names(), self.model, strict=True):
            self.vllm_config.compilation_config.static_forward_context[name] = layer
        if self.managed:
            engine = types.SimpleNamespace(
                settings=types.SimpleNamespace(private=self.private),
                layout=keys.layout(self.vllm_config, self.vllm_config.model_config),
            )
            made: Any = model_loader.Loaded(cast(Any, engine), self._mapping())
            model_loader._loaded[self.model] = made

    def _mapping(self) -> Any:
        info = TensorInfo("weight", "F32", (1,), (1,), 4, None)
        return types.SimpleNamespace(
            infos=lambda: [info],
            digests=lambda weights=self.weights: {"weight": weights},
        )

    def _names(self) -> list[str]:
        return [f"layers.{number}.attn" for number in range(LAYERS)]

    def get_model(self) -> Any:
        return self.model

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        size = {"num_kv_heads": HEADS, "head_size": SIZE, "dtype": self.dtype}
        return {name: FullAttentionSpec(block_size=self.block, **size) for name in self._names()}

    def determine_available_memory(self) -> int:
        return 1 << 24

    def initialize_from_config(self, config: Any) -> None:
        self.caches_blocks = config.num_blocks
        shape = (config.num_blocks, 2, self.block, HEADS, SIZE)
        self.caches = {name: torch.zeros(shape, dtype=self.dtype) for name in self._names()}
        self.connector: Any = None
        if self.vllm_config.kv_transfer_config is not None:
            made = KVConnectorFactory.create_connector(
                self.vllm_config, KVConnectorRole.WORKER, config
            )
            made.register_kv_caches(self.caches)
            self.connector = object.__new__(ActiveKVConnector)  # without vLLM's global connector
            self.connector.vllm_config = self.vllm_config
            self.connector.kv_connector = made
            self.connector._disabled = False

    def get_kv_connector_handshake_metadata(self) -> Any:
        if self.connector is None:
            return None
        return {(0, self.rank): self.connector.kv_connector.get_handshake_metadata()}

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(0.0, 0.0)

    def take_draft_token_ids(self) -> None:
        return None

    def reset_mm_cache(self) -> None:
        pass

    def reset_encoder_cache(self) -> None:
        pass

    def shutdown(self) -> None:
        if self.connector is not None:
            self.connector.kv_connector.shutdown()

    # ---- a step ----

    def execute_model(self, step: Any) -> ModelRunnerOutput:
        self._update(step)
        if self.connector is not None:
            self.connector.pre_forward(step)
            loaded = step.kv_connector_metadata.loads.blocks
            self.loads.append(len(loaded))
            for name in step.num_scheduled_tokens if loaded else ():
                self._check(self.requests[name], set(loaded))
        sampled = [self._compute(name, count) for name, count in step.num_scheduled_tokens.items()]
        requests = list(step.num_scheduled_tokens)
        found = ModelRunnerOutput(
            req_ids=requests,
            req_id_to_index={request: at for at, request in enumerate(requests)},
            sampled_token_ids=sampled,
        )
        if self.connector is not None:
            found.kv_connector_output = self.connector.post_forward(step.finished_req_ids)
        return found

    def _update(self, step: Any) -> None:
        for name in step.finished_req_ids:
            self.requests.pop(name, None)
        for new in step.scheduled_new_reqs:
            tokens = list(new.prompt_token_ids)
            self.requests[new.req_id] = _Request(
                tokens, len(tokens), list(new.block_ids[0]), new.num_computed_tokens
            )
        cached = step.scheduled_cached_reqs
        for at, name in enumerate(cached.req_ids):
            request = self.requests[name]
            blocks = cached.new_block_ids[at]
            if name in cached.resumed_req_ids:
                request.blocks = []
                self.resumed += 1
            request.blocks += blocks[0] if blocks is not None else []
            request.computed = cached.num_computed_tokens[at]
            request.tokens = request.tokens[: request.prompt + cached.num_output_tokens[at]]

    def _compute(self, name: str, count: int) -> list[int]:
        """Computes so many tokens of a request. Returns the next token if all were computed."""
        request = self.requests[name]
        state = self._read(request, request.computed - 1) if request.computed else 0
        for position in range(request.computed, request.computed + count):
            state = state_after(state, request.tokens[position], self.weights)
            self._write(request, position, state)
        self.computed += count
        request.computed += count
        if request.computed < len(request.tokens):
            return []
        request.tokens.append(state % TOKENS)
        return [request.tokens[-1]]

    def _check(self, request: _Request, loaded: set[int]) -> None:
        """Each token of the blocks that were loaded: `_compute` reads the last one only."""
        for position in range(request.computed):
            if request.blocks[position // self.block] in loaded:
                before = self._read(request, position - 1) if position else 0
                state = state_after(before, request.tokens[position], self.weights)
                if self._read(request, position) != state:
                    self.torn(f"KV of token {position} is of another request, and")

    def _places(self, request: _Request, position: int) -> Iterator[tuple[torch.Tensor, int]]:
        """The eight bytes of each place of a token's KV, and what the state is XORed with there."""
        block = request.blocks[position // self.block]
        for layer, cache in enumerate(self.caches.values()):
            for part in range(2):
                place = cache[block, part, position % self.block].view(torch.int64)
                for at in range(place.numel()):
                    mix = 1000 * self.rank + 100 * layer + 50 * part + at
                    yield place.view(-1)[at : at + 1], mix * 0x9E3779B9

    def _write(self, request: _Request, position: int, state: int) -> None:
        for place, mix in self._places(request, position):
            place.fill_(state ^ mix)

    def _read(self, request: _Request, position: int) -> int:
        found = {int(place.item()) ^ mix for place, mix in self._places(request, position)}
        if len(found) != 1:
            return self.torn(f"KV of token {position} in blocks {request.blocks}")
        return found.pop()

    def torn(self, what: str) -> int:
        raise AssertionError(f"{what} is torn")

    # ---- what a test asks ----

    def tokens_computed(self) -> int:
        return self.computed

    def blocks_loaded(self) -> int:
        return sum(self.loads)

    # ---- what a switch calls ----

    def gpuwm_prepare(self, token: str, ref: str, *_: str) -> dict[str, Any]:
        self.wanted = ref.partition("@")[2]
        return {"rank": self.rank}

    def gpuwm_prepared(self, token: str) -> dict[str, Any]:
        return {**self._said(self.wanted), "before": self._said(self.weights), "pending": False}

    def gpuwm_commit(self, token: str) -> dict[str, Any]:
        self.move(self.wanted)
        return self._said(self.weights)

    def gpuwm_settle(self, token: str, outcome: str) -> dict[str, Any]:
        return self._said(self.weights)

    def _said(self, weights: str) -> dict[str, Any]:
        return {"rank": self.rank, "version": f"m@{weights}", "id": weights}

    def move(self, weights: str) -> None:
        self.weights = weights
        loaded = model_loader._loaded[self.model]
        loaded.mapping = self._mapping()
        for told in loaded.moved:
            told()


class OtherWeights(Worker):
    weights = "v2"


class SameWeights(Worker):
    pass


class SmallerBlocks(Worker):
    """The same bytes in a block: half as many tokens, each twice as large."""

    block = BLOCK // 2
    dtype = torch.float64


class LargerBlocks(Worker):
    """The same tokens in a block, each twice as large."""

    dtype = torch.float64


class OtherType(Worker):
    """The same bytes in a block: twice as many tokens, each half as large."""

    block = BLOCK * 2
    dtype = torch.bfloat16


class Unmanaged(Worker):
    managed = False


class Private(Worker):
    private = ("*.bias",)


class Evicting(Worker):
    """Before it loads, others reserve all blocks that they can get."""

    memory: Any = None

    def execute_model(self, step: Any) -> ModelRunnerOutput:
        if self.memory is not None:
            keys = [number.to_bytes(24, "little") for number in range(1, self.memory.blocks + 1)]
            others = Blocks(self.memory).reserve(b"".join(keys))
            others.abandon()
            self.memory = None
        return super().execute_model(step)


class Losing(Worker):
    """Before it loads, what it is to load is gone, though it is held."""

    memory: Any = None

    def execute_model(self, step: Any) -> ModelRunnerOutput:
        if self.memory is not None and step.kv_connector_metadata.loads.blocks:
            for slot in self.memory.slots[1:]:
                slot.ready = False
            self.memory = None
        return super().execute_model(step)

    def torn(self, what: str) -> int:
        return 0  # a real model computes with what there is
