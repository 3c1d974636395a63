"""Load formats of vLLM that stop their process (SIGSTOP) at a moment, so that a test can kill it
there or let it go on: the `inner` of a builder that is caught in the act."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from gpuwm._publish.making import Making


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class _Reads(DefaultModelLoader):  # type: ignore[misc]
    def __init__(self, load_config: Any) -> None:
        super().__init__(dataclasses.replace(load_config, load_format="auto"))


class StopsAtStart(_Reads):
    """Stops before it reads anything: whoever builds has been elected then."""

    def load_model(self, *arguments: Any, **named: Any) -> torch.nn.Module:
        _stop()
        model: torch.nn.Module = super().load_model(*arguments, **named)
        return model


class StopsHalfway(_Reads):
    """Stops when it has read half of the checkpoint's tensors into the model."""

    def get_all_weights(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, torch.Tensor]]:
        weights = list(super().get_all_weights(*arguments, **named))
        yield from weights[: len(weights) // 2]
        _stop()
        yield from weights[len(weights) // 2 :]


class StopsThenFails(_Reads):
    """Stops when it has read half of the checkpoint's tensors into the model, and then raises."""

    def get_all_weights(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, torch.Tensor]]:
        weights = list(super().get_all_weights(*arguments, **named))
        yield from weights[: len(weights) // 2]
        _stop()
        raise OSError("the test's disk is broken")


class StopsInPublish(_Reads):
    """Reads all of it; the process stops when the version is filled, before its commit."""

    def load_model(self, *arguments: Any, **named: Any) -> torch.nn.Module:
        model: torch.nn.Module = super().load_model(*arguments, **named)
        end = Making._end

        def stop(making: Making, call: Any) -> Any:
            _stop()
            return end(making, call)

        Making._end = stop  # type: ignore[assignment, method-assign]
        return model


class OtherValues(_Reads):
    """Does not stop: a plain value of the model is another one than that of any other load."""

    def load_model(self, *arguments: Any, **named: Any) -> torch.nn.Module:
        model: Any = super().load_model(*arguments, **named)
        model.model.layers[0].self_attn.attn._k_scale_float = 0.25
        return model  # type: ignore[no-any-return]


def register() -> None:
    register_model_loader("stops-at-start")(StopsAtStart)
    register_model_loader("stops-halfway")(StopsHalfway)
    register_model_loader("stops-then-fails")(StopsThenFails)
    register_model_loader("stops-in-publish")(StopsInPublish)
    register_model_loader("other-values")(OtherValues)
