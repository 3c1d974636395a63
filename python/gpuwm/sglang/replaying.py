"""Runs SGLang's post-processing of weights again, without touching a weight."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

Step = tuple[Any, Callable[..., object]]


class Replay:
    """SGLang's post-processing of a fresh model, module by module, for `gpuwm.image.install`.

    Each step runs once, on memory of its own. It leaves the names, kernels and plain values that
    post-processing leaves, and its tensors are exchanged for those of the version. A model's own
    `load_weights` may compute tensors and plain values at its end (`post_load_weights` of MLA
    models): the version has these. seconds: how long the steps took so far.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.seconds = 0.0

    def steps(self) -> Iterator[Step]:
        """The steps in the order of `DefaultModelLoader.load_weights_and_postprocess`."""
        for module in self._model.modules():
            method = getattr(module, "quant_method", None)
            if method is not None:
                process = method.process_weights_after_loading
                yield module, functools.partial(self._timed, process)

    def _timed(self, process: Callable[[Any], object], module: Any) -> None:
        begin = time.perf_counter()
        process(module)
        self.seconds += time.perf_counter() - begin
