"""A plain checkpoint that gpuwm holds, as the source of vLLM's own loader."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from .. import errors
from ..mapping import Mapping as Attached

if TYPE_CHECKING:
    from torch import Tensor

# Modules of vLLM whose models write into the checkpoint's tensors while they load (PLaMo 2 adds to
# norms, gpt-oss clears biases on ranks but the first), and the names of those tensors.
WRITTEN = {
    "vllm.model_executor.models.plamo2": "*norm*",
    "vllm.model_executor.models.gpt_oss": "*bias*",
}


class RawLoader(DefaultModelLoader):  # type: ignore[misc]
    """vLLM's default loader, which reads no file: names and tensors come from a mapping, in GPU
    memory where the checkpoint lies there. The mapping has to live until the model is loaded:
    layers that are quantised as they load keep its tensors until they have all of them."""

    def __init__(self, load_config: Any, checkpoint: Attached) -> None:
        plain = dataclasses.replace(load_config, load_format="auto", model_loader_extra_config={})
        super().__init__(plain)
        self._checkpoint = checkpoint

    def download_model(self, model_config: Any) -> None:
        """Nothing: the checkpoint is there."""

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors of the checkpoint, in the order of their names. Unsupported: the model
        reads a second checkpoint beside it."""
        others = [source.model_or_path for source in getattr(model, "secondary_weights", ())]
        if others:
            raise errors.Unsupported(
                f'"mode": "raw": {type(model).__name__} reads {", ".join(others)} beside '
                f"{self._checkpoint.version}",
                'use "mode": "auto", which lets vLLM read all files',
            )
        modules = {type(module).__module__ for module in model.modules()}
        globs = [glob for module, glob in WRITTEN.items() if module in modules]
        for name in self._checkpoint:
            tensor = self._checkpoint.torch(name)
            written = any(fnmatch.fnmatchcase(name, glob) for glob in globs)
            yield name, tensor.clone() if written else tensor  # the checkpoint is read-only
