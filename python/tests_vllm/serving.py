"""One engine's loading, in a process of its own. multiprocessing's fork server imports this module
once, and every engine is a fork of that: importing vLLM takes longer than all the rest."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
import types
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import vllm.model_executor.models.registry as registry
from vllm.compilation.counter import compilation_counter
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.device_allocator import cumem
from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader import get_model, get_model_loader
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.models import deepseek_v2, llama, mixtral, qwen2, qwen3_moe
from vllm.plugins import load_general_plugins
from vllm.v1.worker import gpu_worker
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

import gpuwm
from gpuwm._mapping import Mapping
from gpuwm.vllm import compiled, memory, model_loader
from gpuwm.vllm.extension import Extension
from gpuwm.vllm.kv.engine import WeightsOf, fields
from gpuwm.vllm.moves import STALE_S, Move
from gpuwm.vllm.publication import OPAQUE
from gpuwm.vllm.transfer import told_by_the_last
from tests_engines import serving
from tests_engines.engines import Job

from . import operators, sleeping

IMPORTED = (deepseek_v2, llama, mixtral, qwen2, qwen3_moe)  # of the models that the tests write

# vLLM looks at a model's class in a process of its own, which would import everything again.
registry._run_in_subprocess = lambda look: look()


class Worker(Extension):
    """What vLLM's worker is for a model that was loaded."""

    def __init__(self, model: torch.nn.Module, rank: int, config: VllmConfig) -> None:
        self.rank, self._model, self.vllm_config = rank, model, config
        self._kv: WeightsOf | None = None
        self._kv_moves: list[None] = []
        self.weight_transfer_engine: Any = None
        self._weight_update_active = False
        if config.weight_transfer_config is not None:
            self.make_transfer_engine()

    def make_transfer_engine(self) -> None:
        config = self.vllm_config
        self.weight_transfer_engine = WeightTransferEngineFactory.create_engine(
            config.weight_transfer_config, config, torch.device("cpu"), self._model
        )

    # As vLLM's worker has them.
    _check_weight_transfer_engine = gpu_worker.Worker._check_weight_transfer_engine
    if hasattr(gpu_worker.Worker, "_start_weight_update"):  # vLLM 0.33
        _start_weight_update = gpu_worker.Worker._start_weight_update
        _weight_update_is_draft = False
        model_runner = types.SimpleNamespace(reset_lora_state=lambda: None)
    start_weight_update = gpu_worker.Worker.start_weight_update
    update_weights = gpu_worker.Worker.update_weights
    finish_weight_update = gpu_worker.Worker.finish_weight_update

    def transfer(self, method: str, *arguments: Any) -> str:
        """Calls one of these, as gpuwm.vllm.Worker does. How it failed, as an HTTP client gets to
        know it, or an empty text."""
        try:
            told_by_the_last(self.vllm_config, lambda: getattr(self, method)(*arguments))
        except Exception as error:
            return str(error)
        return ""

    def get_model(self) -> torch.nn.Module:
        return self._model

    def write(self, way: str) -> str:
        """Tries to write into the weights. How that failed, or an empty text."""
        name, value = next(iter(self._model.named_parameters()))
        others = [(name, torch.zeros_like(value))]
        try:
            with set_current_vllm_config(self.vllm_config):
                WAYS[way](self, others)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def restore_buffers(self) -> None:
        """What vLLM does when an engine wakes from sleep of level 2."""
        kept = {name: each.cpu().clone() for name, each in self._model.named_buffers()}
        for name, each in self._model.named_buffers():
            each.data.copy_(kept[name].data)

    # ---- sleep mode ----

    @functools.cached_property
    def _sleeper(self) -> Any:
        return sleeping.sleeper(self._model, self.rank, self.vllm_config)

    def sleep_mode(self, method: str, *arguments: Any) -> str:
        """Calls `sleep`, `wake_up` or another method of gpuwm.vllm.Worker. How it failed, or an
        empty text."""
        try:
            getattr(self._sleeper, method)(*arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def gpu(self, changed: dict[str, Any] | None = None) -> list[str]:
        """Sets what the GPU does from now on: "others" (bytes that other processes have), "errors".
        What it was asked for since the last call."""
        gpu, changed = self._sleeper.gpu, changed or {}
        gpu.others = changed.get("others", gpu.others)
        gpu.errors |= changed.get("errors", {})
        told: list[str] = gpu.calls
        gpu.calls = []
        return told

    def grow_beside(self, size: int) -> None:
        """Another process takes so many bytes while this engine falls asleep."""
        gpu = self._sleeper.gpu
        real = gpu.unmap_and_release

        def unmap(handle: Any) -> None:
            real(handle)
            gpu.others = size

        cumem.unmap_and_release = unmap

    def refuse_park(self, times: int) -> None:
        """So many parks of this process fail."""
        real, left = Mapping.park, times

        def park(mapping: Mapping) -> None:
            nonlocal left
            if left:
                left -= 1
                raise gpuwm.Busy("as the test wants it")
            real(mapping)

        Mapping.park = park  # type: ignore[assignment,method-assign]

    def be_a_standby(self) -> None:
        self._sleeper.gpu_sharing = memory.Sharing(standby=True)

    def version_bytes(self) -> int:
        """What gpuwm holds for an engine with sleep mode, in its figures."""
        found: int = self._sleeper.version_bytes([self._model])
        return found

    def fail_after_wake(self, times: int) -> None:
        """vLLM fails so many times after the memory of a wake is there."""
        left = times

        def fail() -> None:
            nonlocal left
            if left:
                left -= 1
                raise RuntimeError("vLLM failed")

        # vLLM 0.25 calls the first, vLLM 0.33 the second
        self._sleeper.after_wake = fail
        self._sleeper.synchronize_device = fail

    def sleep_state(self) -> dict[str, Any]:
        """`parked`, the addresses of the `pools` that are mapped, what the pools hold, and the
        backend's `state`."""
        backend = self._sleeper._sleep_mode_backend
        gpu = self._sleeper.gpu
        return {
            "parked": self._gpuwm_loaded().mapping.parked,
            "pools": sorted(gpu.mapped),
            "adapter": bytes(gpu.mapped.get(sleeping.RUNTIME, b"")),
            "state": "none" if backend is None else backend.state(),
            "backend": type(backend).__module__,
        }

    def be_a_replica(self) -> None:
        self.vllm_config.parallel_config.data_parallel_size = 2

    def grow_old(self) -> None:
        """The switch that was prepared began long ago."""
        self._move().began -= STALE_S

    def refuse_exchange(self, after: int = 0, kind: str = "Busy") -> None:
        """No exchange of this process succeeds from now on, but for so many: it raises this class
        of gpuwm's errors."""
        real, left = Mapping.exchange, after

        def exchange(mapping: Mapping, other: Mapping, *, check: bool = False, **more: Any) -> Any:
            nonlocal left
            if not check and not left:
                raise getattr(gpuwm, kind)("as the test wants it")
            left -= not check
            return real(mapping, other, check=check, **more)

        Mapping.exchange = exchange  # type: ignore[assignment,method-assign]

    def has_lost_the_other(self) -> bool:
        """The lease of the version that was prepared."""
        other = self._move().other
        assert other is not None
        try:
            other.check()
        except gpuwm.Error:
            return True
        return False

    def damage(self) -> None:
        """Mapping.verify of this process reads another mapping of the same version from now on,
        of which one byte was changed. That mapping's pages are private: a version itself is
        sealed."""
        real = Mapping.verify

        def verify(mapping: Mapping, *arguments: Any, **named: Any) -> None:
            version = mapping.version
            own = gpuwm.attach(version.id, rank=version.rank, writes="private")
            own[next(iter(own))].torch().view(-1).view(torch.uint8)[0] ^= 1
            real(own, *arguments, **named)

        Mapping.verify = verify  # type: ignore[assignment,method-assign]

    def compile(self) -> tuple[dict[str, int], str]:
        """What vLLM's worker does when it has loaded a model: computes a step, for which vLLM
        compiles. What vLLM has counted, and a digest of what it computed."""
        operators.define_for_compiling()
        config, step = self.vllm_config, torch.arange(8)
        for layer in config.compilation_config.static_forward_context.values():
            layer.impl.forward = _no_attention
        with set_current_vllm_config(config), set_forward_context(None, config, num_tokens=8):
            computed = self._model(step, step)
        compiled.keep(model_loader.all_loaded())
        content = computed.float().contiguous().numpy().tobytes()
        return dataclasses.asdict(compilation_counter), hashlib.sha256(content).hexdigest()

    def token(self) -> str:
        """Of the switch that was prepared."""
        return self._move().token

    def kv(self) -> tuple[str, dict[str, str], int]:
        """What the KV connector says of this rank: the text of its weights, the other fields on
        which its KV depends, and how often it was told of a move since the first call."""
        config = self.vllm_config
        layers = [
            name
            for name, layer in config.compilation_config.static_forward_context.items()
            if hasattr(layer, "get_attn_backend")
        ]
        if self._kv is None:
            self._kv = WeightsOf(config, layers, None, lambda: self._kv_moves.append(None))
        return self._kv.text(), fields(config, 16, layers), len(self._kv_moves)

    def _move(self) -> Move:
        move = self._gpuwm_loaded().move
        assert move is not None
        return move


def _no_attention(*_: Any, output: torch.Tensor, **__: Any) -> torch.Tensor:
    """vLLM's own leaves the output as it is if there is no KV cache."""
    return output.zero_()


def _other_loader(worker: Worker) -> None:
    config = dataclasses.replace(
        worker.vllm_config.load_config, load_format="auto", model_loader_extra_config={}
    )
    get_model_loader(config).load_weights(worker.get_model(), worker.vllm_config.model_config)


def _own_loader(worker: Worker) -> None:
    loader = get_model_loader(worker.vllm_config.load_config)
    loader.load_weights(worker.get_model(), worker.vllm_config.model_config)


def _load_into(model: Any, weights: list[tuple[str, torch.Tensor]]) -> None:
    model.load_weights(iter(weights))


def _runner(worker: Worker) -> Any:
    """What a model runner has that reloads weights."""
    config = worker.vllm_config
    return types.SimpleNamespace(
        vllm_config=config,
        load_config=config.load_config,
        model_config=config.model_config,
        get_model=worker.get_model,
        reset_lora_state=lambda: None,
        reset_encoder_cache=lambda: None,
        reset_mm_cache=lambda: None,
    )


# The ways to write into weights that this vLLM has, by their names; others are weights for one of
# the model's parameters.
WAYS: dict[str, Callable[[Worker, list[tuple[str, torch.Tensor]]], Any]] = {
    "worker": lambda worker, _: gpu_worker.Worker.reload_weights(worker),
    "reload from an iterator": lambda worker, others: GPUModelRunner.reload_weights(
        _runner(worker), weights_iterator=iter(others), is_checkpoint_format=False
    ),
    "reload a checkpoint": lambda worker, others: GPUModelRunner.reload_weights(
        _runner(worker), weights_iterator=iter(others)
    ),
    "layers": lambda worker, _: layerwise.initialize_layerwise_reload(worker.get_model()),
    "model": lambda worker, others: _load_into(worker.get_model(), others),
    "its own loader": lambda worker, _: _own_loader(worker),
    "another loader": lambda worker, _: _other_loader(worker),
}
if hasattr(gpu_worker.Worker, "reset_weights"):  # vLLM 0.32
    gpu_worker_reset: Any = gpu_worker
    WAYS["reset"] = lambda worker, _: gpu_worker_reset.zero_weights(worker.get_model())


def serve(pipe: Connection, log: str, job: Job) -> None:
    """`tests_engines.serving.serve`. The test asks "describe", "shared", or with arguments for
    methods of `Worker`."""
    serving.begin(log, job)

    def load() -> tuple[str, serving.Answering]:
        config = _config(job)
        model = _load(job, config)
        worker = Worker(model, job.rank, config)

        def answer(what: str, *arguments: Any) -> Any:
            if what in _ANSWERS:
                return _ANSWERS[what](model)
            return getattr(worker, what)(*arguments)

        return _describe(model), answer

    serving.serve(pipe, load)


def _config(job: Job) -> VllmConfig:
    load_general_plugins()
    config = EngineArgs(
        skip_tokenizer_init=True,
        max_model_len=64,
        **{"dtype": "bfloat16", "enforce_eager": True, **job.arguments},
    ).create_engine_config()
    config.parallel_config.rank = job.rank
    for path, value in job.changed.items():
        part, _, name = path.rpartition(".")
        setattr(operator.attrgetter(part)(config), name, value)
    return config


def _load(job: Job, config: VllmConfig) -> torch.nn.Module:
    parallel = config.parallel_config
    with set_current_vllm_config(config):
        init_distributed_environment(
            parallel.world_size, job.rank, f"file://{job.meet}", job.rank, "gloo"
        )
        ensure_model_parallel_initialized(
            parallel.tensor_parallel_size, parallel.pipeline_parallel_size
        )
        model: torch.nn.Module = get_model(vllm_config=config)
        return model


def _describe(model: torch.nn.Module) -> str:
    return serving.describe(model, OPAQUE)


_ANSWERS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "describe": _describe,
    "shared": serving.is_shared,
    "ways": lambda _: list(WAYS),
}
