"""The classes of SGLang from which gpuwm's classes derive, as type checkers see them: with what
gpuwm's classes use and override. SGLang need not be installed where a checker runs.

No module imports this one when it runs. `tests_sglang/test_bases.py` compares it with SGLang's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class BaseModelLoader:
    load_config: Any

    def __init__(self, load_config: Any) -> None: ...
    def download_model(self, model_config: Any) -> None: ...
    def load_model(self, *, model_config: Any, device_config: Any) -> Module:
        raise NotImplementedError


class DefaultModelLoader(BaseModelLoader):
    def download_model(self, model_config: Any) -> None: ...
    def load_model(self, *, model_config: Any, device_config: Any) -> Module:
        raise NotImplementedError

    def _get_all_weights(self, model_config: Any, model: Module) -> Iterator[tuple[str, Tensor]]:
        raise NotImplementedError

    @classmethod
    def _filter_mtp_weights(
        cls, weights_iterator: Iterable[tuple[str, Tensor]], prefix: str, draft_model_idx: int
    ) -> Iterator[tuple[str, Tensor]]:
        raise NotImplementedError
