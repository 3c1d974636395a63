"""Load formats of vLLM that stop their process (SIGSTOP) at a moment, so that a test can kill it
there or let it go on. As `inner` of load format gpuwm they make a builder that is caught in the act."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class StopsAtStart(DefaultModelLoader):  # type: ignore[misc]
    """Stops before it reads anything: whoever builds has been elected then."""

    def load_model(self, *arguments: Any, **named: Any) -> torch.nn.Module:
        _stop()
        return super().load_model(*arguments, **named)


class StopsHalfway(DefaultModelLoader):  # type: ignore[misc]
    """Stops when it has read half of the checkpoint's tensors into the model."""

    def get_all_weights(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, torch.Tensor]]:
        weights = list(super().get_all_weights(*arguments, **named))
        yield from weights[: len(weights) // 2]
        _stop()
        yield from weights[len(weights) // 2 :]


class FailsHalfway(DefaultModelLoader):  # type: ignore[misc]
    """Raises when it has read half of the checkpoint's tensors into the model."""

    def get_all_weights(self, *arguments: Any, **named: Any) -> Iterator[tuple[str, torch.Tensor]]:
        weights = list(super().get_all_weights(*arguments, **named))
        yield from weights[: len(weights) // 2]
        raise OSError("the test's disk is broken")


def register() -> None:
    register_model_loader("stops-at-start")(StopsAtStart)
    register_model_loader("stops-halfway")(StopsHalfway)
    register_model_loader("fails-halfway")(FailsHalfway)
