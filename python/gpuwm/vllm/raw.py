"""A plain checkpoint that gpuwm holds, as the source of vLLM's own loader."""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import errors

if TYPE_CHECKING:
    from torch import Tensor

    from ._bases import DefaultModelLoader
else:
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

# Modules of vLLM whose models write into the checkpoint's tensors while they load (PLaMo 2 adds to
# norms; gpt-oss clears biases on all ranks but the first), and the names of those tensors.
WRITTEN = {
    "vllm.model_executor.models.plamo2": "*norm*",
    "vllm.model_executor.models.gpt_oss": "*bias*",
}


class FedLoader(DefaultModelLoader):
    """vLLM's default loader, but it reads no file: names and tensors are those of `weights`, for
    one load. source: where they come from, for errors."""

    counter_before_loading_weights: float
    remedy = "publish versions of it by an engine (load format gpuwm)"

    def __init__(
        self, load_config: Any, weights: Iterable[tuple[str, Tensor]], source: str
    ) -> None:
        plain = dataclasses.replace(load_config, load_format="auto", model_loader_extra_config={})
        super().__init__(plain)
        self._weights = weights
        self._source = source

    def download_model(self, model_config: Any) -> None:
        """Does nothing: the tensors are there."""

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Tensor]]:
        """Yields the weights. Raises Unsupported if the model reads a second checkpoint besides
        this one."""
        others = [source.model_or_path for source in getattr(model, "secondary_weights", ())]
        if others:
            raise errors.Unsupported(
                f"{self._source}: {type(model).__name__} reads {', '.join(others)} beside it",
                self.remedy,
            )
        modules = {type(module).__module__ for module in model.modules()}
        globs = [glob for module, glob in WRITTEN.items() if module in modules]
        self.counter_before_loading_weights = time.perf_counter()  # vLLM's log needs it
        for name, tensor in self._weights:
            written = any(fnmatch.fnmatchcase(name, glob) for glob in globs)
            # the checkpoint's tensors stay as they are
            yield name, tensor.clone() if written else tensor


class RawLoader(FedLoader):
    """Loads from a plain checkpoint that gpuwm holds, in GPU memory if it lies there. Its tensors
    must be there until the model is loaded: layers that are quantised while they load keep them
    until they have all of them. checkpoint: its version."""

    remedy = 'use "mode": "auto", which lets vLLM read all files'

    def __init__(
        self, load_config: Any, weights: Iterable[tuple[str, Tensor]], checkpoint: str
    ) -> None:
        super().__init__(load_config, weights, f'"mode": "raw": {checkpoint}')
