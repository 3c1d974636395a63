"""The load format `gpuwm` of SGLang.

    python -m sglang.launch_server --model-path MODEL --load-format gpuwm
    … --model-loader-extra-config '{"ref": "llama@v1"}'

The first engine loads the model with SGLang's own loader and publishes it as it is after SGLang's
post-processing: sharded, fused, quantised. It goes on with the published memory, so that the model
is there once. All other engines attach to that version, and build a model around it. Each rank of
an engine publishes, or attaches to, one part of the version. A draft model is a version of its own.
Its ref is the target's with `.draft` at the end.

The keys of `--model-loader-extra-config` mean what they mean in `gpuwm.vllm.model_loader`: ref,
mode, inner (a load format of SGLang), inner_config, fallback, owner, wait, socket, private. Keys on
several engines of one GPU do not exist here: SGLang measures the GPU's free memory when it starts,
and `--mem-fraction-static` is its part of that.

Before an engine attaches it compares the version's key with its own configuration. A difference is
an error that names the field. Weights are read-only. Options that write into weights are refused by
name (`gpuwm.sglang.refusals`), and so are such requests (`gpuwm.sglang.guards`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.model_loader import loader as loaders

from .._mapping import Mapping as Attached
from .._torch import init
from ..engines import load_flow, publication
from ..engines.engine import Engine
from . import (
    arguments,
    attributes,
    backends,
    engines,
    guards,
    loaded,
    postprocess,
    refusals,
    settings,
)
from .engines import Load
from .raw import RawLoader

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from ._bases import BaseModelLoader
else:
    from sglang.srt.model_loader.loader import BaseModelLoader


class Loader(BaseModelLoader):
    """SGLang's loader of the load format `gpuwm`. The module's docstring says what it does.

    Its methods raise gpuwm.Error, with what to do, and what the inner loader raises.
    """

    def __init__(self, load_config: Any) -> None:
        """Raises Invalid if `model_loader_extra_config` has an unknown key or value, and the errors
        of `refusals.check_start`."""
        refusals.check_start(arguments.decided())
        super().__init__(load_config)
        self.settings: settings.Settings = settings.parse(
            load_config.model_loader_extra_config or {}
        )
        self._inner_config = dataclasses.replace(
            load_config,
            load_format=self.settings.inner,
            model_loader_extra_config=dict(self.settings.inner_config),
        )

    def download_model(self, model_config: Any) -> None:
        """Downloads what the inner loader would read. It does nothing in modes that read no
        file."""
        if self.settings.mode in ("auto", "save"):
            loaders.get_model_loader(self._inner_config, model_config).download_model(model_config)

    def load_model(self, *, model_config: Any, device_config: Any) -> Module:
        """Returns the model, in evaluation mode, with its parameters in gpuwm's memory. Collective:
        all ranks of the engine call it."""
        load = Load(arguments.decided(), model_config, self._inner_config, device_config.device)
        steps = _Steps(load, self.settings, device_config)
        return load_flow.or_alone(
            steps, lambda: load_flow.carry_out(steps, load_flow.decide(steps))
        )


class _Steps(load_flow.Steps):
    """The steps of a load that only SGLang's code can take."""

    log = engines.log
    made_by = "sglang.maker"
    written_by_loading = attributes.WRITTEN_BY_LOADING
    load: Load

    def __init__(self, load: Load, chosen: settings.Settings, device_config: Any) -> None:
        super().__init__(load, chosen)
        self._device_config = device_config

    def check(self) -> None:
        """Also raises Unsupported if SGLang can't be kept from writing into weights."""
        guards.install()
        refusals.check(self.load.server_args, self.load.model_config)
        unknown = arguments.others(self.load.server_args)
        if unknown:
            self.log.info(
                "gpuwm: weights may depend on these arguments of SGLang, as far as gpuwm knows. "
                "Engines share weights only if they agree in them: %s",
                ", ".join(sorted(unknown)),
            )

    def read(self) -> Module:
        return self._load_by(
            loaders.get_model_loader(self.load.load_config, self.load.model_config)
        )

    def read_raw(self, weights: Iterable[tuple[str, Tensor]], checkpoint: str) -> Module:
        return self._load_by(RawLoader(self.load.load_config, weights, checkpoint))

    def _load_by(self, loader: Any) -> Module:
        model: Module = loader.load_model(
            model_config=self.load.model_config, device_config=self._device_config
        )
        return model

    def initialize(self) -> Module:
        model_config, load_config = self.load.model_config, self.load.load_config
        quant_config = loaders._get_quantization_config(model_config, load_config)
        with init.empty_init(), torch.device(self.load.device):
            model: Module = loaders._initialize_model(model_config, load_config, quant_config)
        return model

    def replay(self, model: Module) -> postprocess.Replay:
        return postprocess.Replay(model)

    def finish(self, model: Module) -> None:
        """SGLang notes nothing."""

    def backends(self, model: Module) -> dict[str, str]:
        return backends.backends(model)

    def publish(self, engine: Engine, model: Module) -> Attached:
        return publication.publish(
            engine,
            model,
            backends.backends(model),
            {self.made_by: publication.made_by("SGLang", "sglang", self.load.model)},
            opaque=attributes.OPAQUE,
            ignored=attributes.IGNORED,
            written=attributes.WRITTEN,
        )

    def keep(self, model: Module, engine: Engine, mapping: Attached) -> None:
        loaded.remember(model, mapping)
        guards.close(model)
