"""Runs vLLM's post-processing of weights again, without touching a weight."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ..engines import postprocess
from ..engines.postprocess import Step
from . import releases


class Replay(postprocess.Replay):
    """vLLM's post-processing.

    `supports_pre_processed_weights` of vLLM 0.30 and newer is no substitute, for two reasons. Few
    quantisation methods support it. And it makes kernels only after the weights have been
    installed, while an image is installed into a model that has its kernels, so that every
    difference between both is seen.
    """

    def __init__(self, model: Any, model_config: Any) -> None:
        super().__init__(model)
        self._dtype = model_config.dtype

    def _steps(self) -> Iterator[Step]:
        """The steps in the order of vLLM's `process_weights_after_loading`: quantisation methods,
        then attention, which reads what they left, then what looks at the whole model."""
        yield from (*self._methods(), *self._attention(), *self._whole())

    def _methods(self) -> Iterator[Step]:
        from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

        for module in self._model.modules():
            method = getattr(module, "quant_method", None)
            if isinstance(method, QuantizeMethodBase):
                yield module, functools.partial(_process, method, module)

    def _attention(self) -> Iterator[Step]:
        is_attention = releases.attention_check()
        for module in self._model.modules():
            if is_attention(module):
                process = module.process_weights_after_loading
                yield module, functools.partial(process, self._dtype)

    def _whole(self) -> Iterator[Step]:
        """Modules that look at the whole model, HPC kernels, and then the model's own hook."""
        from vllm.model_executor.model_loader import utils

        if (kind := getattr(utils, "HpcModule", None)) is not None:
            for module in self._model.modules():
                if isinstance(module, kind):
                    process = module.process_weights_after_loading
                    yield module, functools.partial(process, self._model)
        if releases.processes_model() and hasattr(self._model, "process_weights_after_loading"):
            yield self._model, self._model.process_weights_after_loading


def _process(method: Any, module: Any) -> None:
    _unwrap(module)
    method.process_weights_after_loading(module)


def _unwrap(module: Any) -> None:
    """Removes the loaders with which online quantisation collects a layer's weights, as vLLM does
    before it quantises the layer."""
    for parameter in module.parameters(recurse=False):
        loader: Any = getattr(parameter, "weight_loader", None)
        while getattr(loader, "__name__", "") == "online_process_loader":
            loader = loader.__wrapped__
            parameter.weight_loader = loader


def finish(model: Any, model_config: Any) -> None:
    """Notes about a loaded model what vLLM notes: no layer waits for weights any more, and what
    torchao needs for a reload."""
    from vllm.model_executor.model_loader import reload
    from vllm.model_executor.model_loader.reload import layerwise

    for module in model.modules():
        info = layerwise.get_layerwise_info(module)
        if info.can_load():
            info.reset()
    if model_config.quantization == "torchao":
        reload.set_torchao_reload_attrs(model, model_config)
