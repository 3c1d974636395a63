"""The load format `gpuwm` of vLLM.

    vllm serve MODEL --load-format gpuwm
    vllm serve MODEL --load-format gpuwm --model-loader-extra-config '{"ref": "llama@v1"}'

The first engine loads the model with vLLM's own loader and publishes it as it is after vLLM's
post-processing: sharded, fused, quantised. It goes on with the published memory, so that the model
is there once. All other engines attach to that version, and build a model around it. Each rank of
an engine publishes, or attaches to, one part of the version. A draft model is a version of its own.
Its ref is the target's with `.draft` at the end.

The keys of `--model-loader-extra-config`; none of them is required:

- ref: the version, "llama@v1". In modes load and auto it may be an alias ("llama@prod") if what the
  alias names is there. Absent: a name is derived from the model's name and from all that the
  weights depend on (checkpoint, configuration, quantisation, ranks, GPU, versions of vLLM and
  torch), and the log has it.
- mode: "auto" (default): attach if the version is there. Else one of the engines that start is
  elected to build it, and the others wait for it. If the builder fails or dies, the next one is
  elected. "load": attach, or fail. "save": build, or fail if the name is taken or being built.
  "raw": `ref` names a plain checkpoint that gpuwm holds (`gpuwmctl load`). The engine that builds
  reads its tensors from GPU memory (or from the host's, if it lies there) instead of files. The
  result is published under a derived name, to which all others attach, as with auto. Checkpoint and
  model are held at once: retire the checkpoint when the model is there.
- inner: vLLM's load format with which the builder reads the checkpoint; default "auto".
- inner_config: that loader's own `model_loader_extra_config`; default {}.
- fallback: "auto": if gpuwm can't be used, the engine loads with the inner loader into memory of
  its own, and a warning in the log says why. Absent: that is an error.
- owner: whose versions are accepted: the number of a user, "operator", or a list of these. Absent:
  the engine's own user and operators.
- wait: seconds to wait. Absent: auto and raw wait for the builder as long as it lives, and load
  does not wait. It bounds connecting to gpuwmd and the wait for the version together. It is also
  how long to wait for gpuwmd to come up; absent: not at all.
- socket: gpuwmd's socket. Absent: $GPUWM_SOCKET or the usual places.
- private: patterns of names of parameters. This engine gets copies of these, which may be written.
- caches: "off" (default), "own" or "owner": whether this engine keeps what it compiles with the
  version, and whose compiled files it takes: `gpuwm.engines.caches`.
- engines: how many engines share the GPU; default 1. engine_overhead_gib: what each of them has on
  the GPU besides torch's memory. `gpuwm.vllm.memory` says more about both.
- standby: the lock of a group of engines of which one is active. `python -m gpuwm.vllm standby`
  sets it, with everything else that such an engine needs.

Before an engine attaches it compares the version's key with its own configuration. A difference is
an error that names the field. Weights are read-only: options that write into weights are refused by
name (`gpuwm.vllm.refusals`). With `--quantization bitsandbytes` vLLM itself replaces the load
format, so gpuwm is not called. LoRA adapters stay beside the weights and are allowed.

Memory: the builder needs the model and 2 GiB at its peak. All other engines need only what vLLM's
`__init__` computes. With sleep mode the weights, and all that is loaded with them, stay outside of
vLLM's sleeping pool. With gpuwm.vllm.Worker a sleep parks them (`gpuwm.vllm.sleep_mode`). Without
that worker they stay where they are.
"""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model

from .. import errors
from .._mapping import Mapping as Attached
from .._torch import init
from ..engines import election, load_flow
from ..engines.caches import Caches
from ..engines.engine import Engine
from ..engines.publication import made_by
from ..engines.settings import Settings
from . import (
    backends,
    compiled,
    differences,
    engines,
    guards,
    memory,
    pools,
    postprocess,
    publication,
    refusals,
    releases,
    settings,
)
from .engines import Load
from .raw import RawLoader

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from ._bases import BaseModelLoader
    from .moves import Move
else:
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

log: logging.Logger = logging.getLogger("vllm.gpuwm")


class Loader(BaseModelLoader):
    """vLLM's loader of the load format `gpuwm`. The module's docstring says what it does.

    Its methods raise gpuwm.Error, with what to do, and what the inner loader raises.
    """

    def __init__(self, load_config: Any) -> None:
        """Raises Invalid if `model_loader_extra_config` has an unknown key or value."""
        super().__init__(load_config)
        self.settings: Settings = settings.parse(load_config.model_loader_extra_config or {})

    def download_model(self, model_config: Any) -> None:
        """Downloads what the inner loader would read. It does nothing in modes that read no
        file."""
        if self.settings.mode in ("auto", "save"):
            _inner(self.load_config, self.settings).download_model(model_config)

    def load_weights(self, model: Module, model_config: Any) -> None:
        """Raises Unsupported: vLLM calls this to write other weights into a model that is
        loaded."""
        raise guards.refused("load_weights")

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """Returns the bytes on this rank's device of the versions that this engine attaches to, or
        0 if it builds. vLLM calls this on a fresh loader before it measures free memory. So the
        election takes place here: if an engine waits for another one, it measures when the version
        is there. `load_model` goes on with the outcome. Raises the errors of `load_model`.

        A draft model that is not there yet counts as 0: vLLM sees its memory grow. If several
        engines share the GPU ("engines"), the result leaves this engine its part. The part of an
        engine that builds is too small by the other engines' parts of the weights. If
        gpuwm.vllm.Worker counts the versions in this process, it counts all of these itself, and
        the result is 0.

        A call first forgets what an earlier start in this process decided: see `forget`. If this
        call fails after the election, the claim goes to the next engine.
        """
        forget()
        try:
            return self._decide_and_measure(vllm_config)
        except BaseException:
            forget()
            raise

    def _decide_and_measure(self, vllm_config: Any) -> int:
        steps = self._steps(Load(vllm_config, vllm_config.model_config))
        try:
            decided = load_flow.decide(steps)
        except errors.Error as error:
            if not load_flow.falls_back(self.settings, error):
                raise
            _decided[_key(self.settings, False)] = error
            return 0
        _decided[_key(self.settings, False)] = decided
        if _worker_counts:
            return 0
        engine, mapping = decided
        versions = 0 if mapping is None else mapping.version.nbytes
        versions += engines.draft_bytes(vllm_config, engine)
        how = memory.sharing(
            self.load_config.model_loader_extra_config, vllm_config.parallel_config.world_size
        )
        if how.engines == 1:
            return versions
        total = torch.accelerator.get_memory_info()[1]
        utilization = vllm_config.cache_config.gpu_memory_utilization
        return memory.external(total, utilization, versions, how, builds=mapping is None)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Module:
        """Returns the model, in evaluation mode, with its parameters in gpuwm's memory. Collective:
        all ranks of the engine call it."""
        steps = self._steps(Load(vllm_config, model_config, prefix))
        return pools.outside(
            vllm_config, lambda: load_flow.or_alone(steps, lambda: self._share(steps))
        )

    def _share(self, steps: _Steps) -> Module:
        with _registered_once(steps.load.vllm_config):
            return load_flow.carry_out(steps, self._decided(steps.load) or load_flow.decide(steps))

    def _decided(self, load: Load) -> load_flow.Decision | None:
        """What `get_external_weight_memory` decided. Raises the error with which it ended."""
        key = _key(self.settings, load.is_draft)
        decided = None if load.prefix else _decided.pop(key, None)
        if isinstance(decided, errors.Error):
            raise decided
        return decided

    def _steps(self, load: Load) -> _Steps:
        return _Steps(load, self.settings, self.load_config)


def _inner(load_config: Any, chosen: Settings) -> Any:
    """Makes vLLM's own loader. load_config: of the load format `gpuwm`."""
    return get_model_loader(
        dataclasses.replace(
            load_config,
            load_format=chosen.inner,
            model_loader_extra_config=dict(chosen.inner_config),
        )
    )


class _Steps(load_flow.Steps):
    """The steps of a load that only vLLM's code can take."""

    log = log
    made_by = publication.MADE_BY
    written_by_loading = differences.WRITTEN_BY_LOADING
    load: Load

    def __init__(self, load: Load, chosen: Settings, load_config: Any) -> None:
        super().__init__(load, chosen)
        self._load_config = load_config

    def compiles(self) -> bool:
        return not self.load.is_draft  # the target's files have the draft's beside them

    def caches(self) -> Caches:
        if not _worker_counts:
            log.info(
                "gpuwm: this engine takes compiled files, and keeps none: for that, start it with "
                "--worker-cls gpuwm.vllm.Worker"
            )
        return compiled.caches(self.load.vllm_config, self.load.device_kind)

    def check(self) -> None:
        guards.check()
        releases.check_overrides(Loader, BaseModelLoader, own=("get_external_weight_memory",))
        refusals.check(self.load.vllm_config, self.load.model_config)
        refusals.check_sharing(self._load_config.model_loader_extra_config, _worker_counts)
        refusals.check_sleep(self.load.vllm_config.model_config, _worker_counts)

    def read(self) -> Module:
        return self._load_by(_inner(self._load_config, self.settings))

    def read_raw(self, weights: Iterable[tuple[str, Tensor]], checkpoint: str) -> Module:
        return self._load_by(RawLoader(self._load_config, weights, checkpoint))

    def _load_by(self, loader: Any) -> Module:
        model: Module = loader.load_model(
            vllm_config=self.load.vllm_config,
            model_config=self.load.model_config,
            prefix=self.load.prefix,
        )
        return model

    def initialize(self) -> Module:
        with init.empty_init(), torch.device(self.load.vllm_config.device_config.device):
            model: Module = initialize_model(
                vllm_config=self.load.vllm_config,
                model_config=self.load.model_config,
                prefix=self.load.prefix,
            )
        return model

    def replay(self, model: Module) -> postprocess.Replay:
        return postprocess.Replay(model, self.load.model_config)

    def finish(self, model: Module) -> None:
        postprocess.finish(model, self.load.model_config)

    def backends(self, model: Module) -> dict[str, str]:
        return backends.backends(model)

    def publish(self, engine: Engine, model: Module) -> Attached:
        return publication.publish(engine, model, made_by("vLLM", "vllm", self.load.model))

    def keep(self, model: Module, engine: Engine, mapping: Attached) -> None:
        _loaded[model] = Loaded(engine, mapping)
        guards.watch(model)


@dataclasses.dataclass(eq=False)
class Loaded:
    """What a model was loaded from. mapping: the version that the model is on now; it has the
    lease. move: to another version, until the move has ended. moved: functions to call when the
    model is on another version, before its engine goes on; they raise nothing."""

    engine: Engine
    mapping: Attached
    move: Move | None = None
    moved: list[Callable[[], None]] = dataclasses.field(default_factory=list)


# Whether gpuwm.vllm.Worker runs this process.
_worker_counts = False


def leave_counting_to_the_worker() -> None:
    """From now on gpuwm.vllm.Worker counts the versions on this process's GPU, and shares the GPU
    with other engines."""
    global _worker_counts
    _worker_counts = True


# By model, for as long as the model lives.
_loaded: weakref.WeakKeyDictionary[Module, Loaded] = weakref.WeakKeyDictionary()
# The decisions of `get_external_weight_memory`, for the loader that vLLM makes next.
_decided: dict[tuple[str, bool], load_flow.Decision | errors.Error] = {}


def _key(chosen: Settings, is_draft: bool) -> tuple[str, bool]:
    return repr(chosen), is_draft


def loaded(model: Module) -> Loaded:
    """Raises Unsupported if the model is in memory of this engine alone."""
    try:
        return _loaded[model]
    except KeyError:
        raise errors.Unsupported(
            "this engine's weights are in memory of its own",
            "start it with --load-format gpuwm; if it has that, it fell back, and its log says why",
        ) from None


def all_loaded() -> list[Loaded]:
    """What the living models of this process were loaded from that lie in gpuwm's memory."""
    return list(_loaded.values())


def holding(layer: Any) -> Loaded | None:
    """What the model was loaded from that has this layer. None: it was not loaded from gpuwm."""
    for model, found in _loaded.items():
        if any(each is layer for each in model.modules()):
            return found
    return None


def forget() -> None:
    """Drops all that `get_external_weight_memory` decided in this process. If this engine was to
    build, the claim goes to the next engine.

    Call it for a start that fails between that call and `load_model`: if the process lives on
    (VLLM_ENABLE_V1_MULTIPROCESSING=0), its claim would keep all other engines waiting. Each rank
    calls it for itself; nothing is sent to other ranks. It raises nothing.
    """
    while _decided:
        _, decided = _decided.popitem()
        if isinstance(decided, errors.Error):
            continue
        engine, mapping = decided
        if mapping is None:
            election.give_up(engine)
        else:
            mapping.drop()


@contextmanager
def _registered_once(vllm_config: Any) -> Iterator[None]:
    """If the load fails, removes what the layers of its model registered, so that another model
    with layers of the same names can be built."""
    compilation = vllm_config.compilation_config
    layers = dict(compilation.static_forward_context)
    experts = list(getattr(compilation, "static_all_moe_layers", ()))
    try:
        yield
    except BaseException:
        compilation.static_forward_context.clear()
        compilation.static_forward_context.update(layers)
        if hasattr(compilation, "static_all_moe_layers"):
            compilation.static_all_moe_layers[:] = experts
        raise
