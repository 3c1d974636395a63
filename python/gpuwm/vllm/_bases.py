"""The classes of vLLM from which gpuwm's classes derive, as type checkers see them: with what
gpuwm's classes use and override. vLLM need not be installed where a checker runs.

No module imports this one when it runs. `tests_vllm/test_bases.py` compares it with vLLM's classes.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module

# ---- loaders -----------------------------------------------------------------------------------


class BaseModelLoader:
    load_config: Any

    def __init__(self, load_config: Any) -> None: ...
    def download_model(self, model_config: Any) -> None: ...
    def load_weights(self, model: Module, model_config: Any) -> None: ...
    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Module:
        raise NotImplementedError


class DefaultModelLoader(BaseModelLoader):
    def download_model(self, model_config: Any) -> None: ...
    def load_weights(self, model: Module, model_config: Any) -> None: ...
    def get_all_weights(self, model_config: Any, model: Module) -> Iterable[tuple[str, Tensor]]:
        raise NotImplementedError


# ---- the worker --------------------------------------------------------------------------------


class MemorySnapshot:
    free_memory: int
    total_memory: int

    def __init__(self, *, device: Any = None) -> None: ...


class Worker:
    cache_config: Any
    device: torch.device
    model_config: Any
    model_runner: Any
    parallel_config: Any
    rank: int
    vllm_config: Any

    def init_device(self) -> None: ...
    def load_model(self, *, load_dummy_weights: bool = False) -> None: ...
    def determine_available_memory(self) -> int:
        raise NotImplementedError

    def initialize_from_config(self, kv_cache_config: Any) -> None: ...
    def compile_or_warm_up_model(self) -> Any: ...
    def get_model(self) -> Module:
        raise NotImplementedError

    def execute_model(self, scheduler_output: Any) -> Any: ...
    def execute_dummy_batch(self) -> None: ...
    def sleep(self, level: int = 1) -> None: ...
    def wake_up(self, tags: list[str] | None = None) -> None: ...
    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...
    def start_weight_update(self) -> None: ...
    def update_weights(self, update_info: dict[str, Any]) -> None: ...
    def finish_weight_update(self) -> None: ...


# ---- sleep mode --------------------------------------------------------------------------------


class CuMemBackend:
    _state: str

    def __init__(self) -> None: ...
    def suspend(self, level: int = 1) -> None: ...
    def resume(self, tags: list[str] | None = None) -> None: ...
    def state(self) -> str:
        raise NotImplementedError


# ---- weight transfer ---------------------------------------------------------------------------


class WeightTransferInitInfo:
    pass


class WeightTransferUpdateInfo:
    pass


class WeightTransferEngine:
    init_info_cls: type[Any]
    update_info_cls: type[Any]

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Module) -> None: ...
    def parse_update_info(self, update_dict: dict[str, Any]) -> Any: ...
    def init_transfer_engine(self, init_info: Any) -> None: ...
    def start_weight_update(self) -> None: ...
    def update_weights(self, update_info: dict[str, Any]) -> None: ...
    def receive_weights(self, update_info: Any) -> None: ...
    def finish_weight_update(self) -> None: ...
    def shutdown(self) -> None: ...


# ---- the KV connector --------------------------------------------------------------------------


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorHandshakeMetadata(abc.ABC):  # noqa: B024 (vLLM's has no abstract method either)
    pass


class KVConnectorMetadata(abc.ABC):  # noqa: B024
    pass


class KVConnectorWorkerMetadata(abc.ABC):  # noqa: B024
    pass


class KVConnectorBase_V1:  # noqa: N801 (vLLM's name)
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None: ...
    def get_handshake_metadata(self) -> Any: ...
    def bind_connector_metadata(self, connector_metadata: Any) -> None: ...
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...
    def wait_for_layer_load(self, layer_name: str) -> None: ...
    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None: ...
    def wait_for_save(self) -> None: ...
    def get_block_ids_with_load_errors(self) -> set[int]:
        raise NotImplementedError

    def build_connector_worker_meta(self) -> Any: ...
    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], Any]
    ) -> None: ...
    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None: ...
    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        raise NotImplementedError

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None: ...
    def build_connector_meta(self, scheduler_output: Any) -> Any: ...
    def update_connector_output(self, connector_output: Any) -> None: ...
    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        raise NotImplementedError

    def reset_cache(self) -> bool | None: ...
    def shutdown(self) -> None: ...
