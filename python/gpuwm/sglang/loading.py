"""The load format `gpuwm` of SGLang.

    python -m sglang.launch_server --model-path MODEL --load-format gpuwm
    … --model-loader-extra-config '{"ref": "llama@v1"}'

The first engine loads the model with SGLang's own loader and publishes it as it is after SGLang's
post-processing: sharded, fused, quantised. It goes on with the published memory, so that the model
is there once. All other engines attach to that version, and build a model around it. Each rank of
an engine publishes, or attaches to, one part of the version. A draft model is a version of its own.
Its ref is the target's with `.draft` at the end.

The keys of `--model-loader-extra-config` mean what they mean in `gpuwm.vllm.loading`: ref, mode,
inner (a load format of SGLang), inner_config, fallback, owner, wait, socket, private. The keys on
several engines of one GPU do not exist here: SGLang measures the GPU's free memory when it starts,
and `--mem-fraction-static` is its part of that.

Before an engine attaches it compares the version's key with its own configuration. A difference is
an error that names the field. Weights are read-only. Options that write into weights are refused by
name (`gpuwm.sglang.refusals`), and so are such requests (`gpuwm.sglang.hooks`).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.model_loader import loader as loaders
from sglang.srt.model_loader.utils import set_default_torch_dtype
from sglang.srt.runtime_context import get_server_args

from .. import errors, image, init
from ..binding import no_collections
from ..engines import differences, electing, publishing
from ..engines.clock import Clock
from ..engines.engine import attach_raw
from ..engines.ranks import RankEnded
from ..mapping import Mapping as Attached
from . import attributes, backends, engines, refusals, replaying, settings
from .engines import Engine, Load, log
from .raw import RawLoader

if TYPE_CHECKING:
    from torch.nn import Module

GIGA = 1e9
MADE_BY = "sglang.maker"  # metadata: JSON with engine, pid and model


class Loader(loaders.BaseModelLoader):  # type: ignore[misc]
    """SGLang's loader of the load format `gpuwm`. The module's docstring says what it does.

    Its methods raise gpuwm.Error, with what to do, and what the inner loader raises.
    """

    def __init__(self, load_config: Any) -> None:
        """Raises Invalid if `model_loader_extra_config` has an unknown key or value."""
        super().__init__(load_config)
        self.settings = settings.parse(load_config.model_loader_extra_config or {})
        self._inner_config = dataclasses.replace(
            load_config,
            load_format=self.settings.inner,
            model_loader_extra_config=dict(self.settings.inner_config),
        )

    # ---- SGLang's interface ----

    def download_model(self, model_config: Any) -> None:
        """Downloads what the inner loader would read. It does nothing in modes that read no
        file."""
        if self.settings.mode in ("auto", "save"):
            loaders.get_model_loader(self._inner_config, model_config).download_model(model_config)

    def load_model(self, *, model_config: Any, device_config: Any) -> Module:
        """Returns the model, in evaluation mode, with its parameters in gpuwm's memory. Collective:
        all ranks of the engine call it."""
        kind = torch.device(device_config.device).type
        load = Load(get_server_args(), model_config, self._inner_config, kind)
        try:
            return self._load(load, device_config)
        except errors.Error as error:
            if self.settings.fallback is None or isinstance(error, RankEnded):
                raise
            _warn_of_fallback(load, error)
        return self._load_inner(load, device_config)

    # ---- how ----

    def _load(self, load: Load, device_config: Any) -> Module:
        clock = Clock()
        refusals.check(load.server_args, load.model_config)
        engine = engines.engine(self.settings, load)
        clock.lap("key")
        mapping = electing.find(engine)
        clock.lap("attach")
        engine.seconds = clock.times
        if mapping is None:
            return self._build(engine, load, device_config)
        return self._attach(engine, mapping, load, device_config)

    def _load_inner(self, load: Load, device_config: Any) -> Module:
        """Loads with SGLang's own loader."""
        model: Module = loaders.get_model_loader(load.load_config, load.model_config).load_model(
            model_config=load.model_config, device_config=device_config
        )
        return model

    # ---- build ----

    def _build(self, engine: Engine, load: Load, device_config: Any) -> Module:
        begin = time.perf_counter()
        model: Module | None = None
        error: BaseException | None = None
        try:
            model, source = self._read(engine, load, device_config)
            engines.check_unchanged(engine, load)
        except BaseException as failed:
            error = failed
        try:
            engine.ranks.agree(f"load {load.model_config.model_path}", error)
        except BaseException:
            electing.give_up(engine)
            raise
        assert model is not None
        loaded = time.perf_counter()
        try:
            mapping = _publish(engine, model, load)
        except errors.Error as failed:
            if self.settings.fallback is None or isinstance(failed, RankEnded):
                raise
            # The model is complete, in memory of this engine alone.
            _warn_of_fallback(load, failed)
            return model
        _loaded[model] = mapping
        _empty_cache()
        publishing.tell_built(
            log, engine, mapping, source, loaded - begin, time.perf_counter() - loaded
        )
        return model

    def _read(self, engine: Engine, load: Load, device_config: Any) -> tuple[Module, str]:
        """Returns the model, loaded by SGLang, and how it was loaded."""
        if self.settings.mode != "raw":
            return self._load_inner(load, device_config), f"loader {self.settings.inner}"
        with attach_raw(engine) as checkpoint:
            model: Module = RawLoader(self._inner_config, checkpoint).load_model(
                model_config=load.model_config, device_config=device_config
            )
            return model, f"from {checkpoint.version} on {checkpoint.device}"

    # ---- attach ----

    def _attach(self, engine: Engine, mapping: Attached, load: Load, device_config: Any) -> Module:
        begin = time.perf_counter() - sum(engine.seconds.values())
        error: BaseException | None = None
        try:
            model, times = self._around(engine, mapping, load, device_config)
        except BaseException as failed:
            error = failed
        engine.ranks.agree(f"build a model around {engine.name}", error)
        _loaded[model] = mapping
        version = mapping.version
        log.info(
            "gpuwm: attached %s (%s), %.2f GB, made by %s, in %.3f s: %s",
            version,
            version.id,
            version.nbytes / GIGA,
            publishing.maker(mapping, MADE_BY),
            time.perf_counter() - begin,
            ", ".join(f"{what} {s:.3f} s" for what, s in {**engine.seconds, **times}.items()),
        )
        return model

    def _around(
        self, engine: Engine, mapping: Attached, load: Load, device_config: Any
    ) -> tuple[Module, dict[str, float]]:
        """Returns a fresh model whose parameters are the version's, and how many seconds each step
        took."""
        clock = Clock()
        model_config, target = load.model_config, torch.device(device_config.device)
        with no_collections(), set_default_torch_dtype(model_config.dtype):
            quant_config = loaders._get_quantization_config(model_config, load.load_config)
            with init.empty_init(), target:
                model = loaders._initialize_model(model_config, load.load_config, quant_config)
            clock.lap("build")
            # Only now it is known which kernels the layers chose.
            engine.check(mapping, backends.backends(model))
            replay = replaying.Replay(model)
            installed = image.install(
                model, mapping, private=self.settings.private, replay=replay.steps()
            )
            differences.warn_of_values(
                log,
                str(mapping.version),
                model,
                installed.values,
                attributes.WRITTEN_BY_LOADING,
            )
            clock.lap("install and post-process")
            clock.times["of it post-processing"] = replay.seconds
        _empty_cache()
        return model.eval(), clock.times


# What each model was loaded from, for as long as the model lives. The mapping has the lease.
_loaded: weakref.WeakKeyDictionary[Module, Attached] = weakref.WeakKeyDictionary()


def version_of(model: Module) -> str | None:
    """The version "model@tag" that a model is on, or None if it is in memory of this engine
    alone."""
    mapping = _loaded.get(model)
    return None if mapping is None else str(mapping.version)


def _publish(engine: Engine, model: Module, load: Load) -> Attached:
    version = importlib.metadata.version("sglang")
    path = str(load.model_config.model_path)
    made_by = {"engine": f"SGLang {version}", "pid": os.getpid(), "model": path}
    return publishing.publish(
        engine,
        model,
        backends.backends(model),
        {MADE_BY: json.dumps(made_by)},
        opaque=attributes.OPAQUE,
        ignored=attributes.IGNORED,
        written=attributes.WRITTEN,
    )


def _empty_cache() -> None:
    """Gives back the memory that torch keeps after a load: other engines, and their versions, share
    the GPU."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def _warn_of_fallback(load: Load, error: errors.Error) -> None:
    log.warning(
        'gpuwm: %s is loaded into memory of this engine alone ("fallback": "auto"), since gpuwm '
        "can't be used: %s",
        load.model_config.model_path,
        error,
    )
