"""A plain checkpoint that gpuwm holds, as the source of SGLang's own loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import errors

if TYPE_CHECKING:
    from torch import Tensor

    from ._bases import DefaultModelLoader
else:
    from sglang.srt.model_loader.loader import DefaultModelLoader


class RawLoader(DefaultModelLoader):
    """SGLang's default loader, but it reads no file: names and tensors are those of a checkpoint
    that gpuwm holds, in GPU memory if it lies there, and for one load. checkpoint: its version."""

    def __init__(
        self, load_config: Any, weights: Iterable[tuple[str, Tensor]], checkpoint: str
    ) -> None:
        super().__init__(
            dataclasses.replace(load_config, load_format="auto", model_loader_extra_config={})
        )
        self._weights = weights
        self._checkpoint = checkpoint

    def download_model(self, model_config: Any) -> None:
        """Does nothing: the checkpoint is there."""

    def _get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Tensor]]:
        """The names and tensors of the checkpoint, in the order of the names. Raises Unsupported if
        the model reads a second checkpoint besides it."""
        others = [source.model_or_path for source in getattr(model, "secondary_weights", ())]
        if others:
            raise errors.Unsupported(
                f'"mode": "raw": {type(model).__name__} reads {", ".join(others)} beside '
                f"{self._checkpoint}",
                'use "mode": "auto", which lets SGLang read all files',
            )
        # A model may change the tensors that it gets while it loads, and the checkpoint is
        # read-only.
        pairs = ((name, tensor.clone()) for name, tensor in self._weights)
        layer = self.load_config.draft_model_idx  # of a draft of several layers
        yield from pairs if layer is None else self._filter_mtp_weights(pairs, "", layer)
