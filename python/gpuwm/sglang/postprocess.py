"""Runs SGLang's post-processing of weights again, without touching a weight."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ..engines import postprocess
from ..engines.postprocess import Step


class Replay(postprocess.Replay):
    """SGLang's post-processing. A model's own `load_weights` may compute tensors and plain values
    at its end (`post_load_weights` of MLA models): the version has these."""

    def _steps(self) -> Iterator[Step]:
        """The steps in the order of `DefaultModelLoader.load_weights_and_postprocess`."""
        for module in self._model.modules():
            method = getattr(module, "quant_method", None)
            if method is not None:
                yield module, functools.partial(method.process_weights_after_loading, module)
