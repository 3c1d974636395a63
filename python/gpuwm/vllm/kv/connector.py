"""vLLM's KV connector `GpuwmConnector`: its two halves behind vLLM's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import releases
from . import engine, refusals, regions, settings
from .layout import layout_of
from .messages import Rank, Report, Step
from .scheduler import Scheduling
from .worker import Working

if TYPE_CHECKING:
    from .._bases import (
        KVConnectorBase_V1,
        KVConnectorHandshakeMetadata,
        KVConnectorMetadata,
        KVConnectorRole,
        KVConnectorWorkerMetadata,
    )
else:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import (
        KVConnectorBase_V1,
        KVConnectorHandshakeMetadata,
        KVConnectorMetadata,
        KVConnectorRole,
        KVConnectorWorkerMetadata,
    )

# The messages are plain data, which the two halves share without vLLM.
KVConnectorHandshakeMetadata.register(Rank)
KVConnectorMetadata.register(Step)
KVConnectorWorkerMetadata.register(Report)


# What vLLM 0.33 asks about sleep mode; older releases ask nothing.
_SLEEP = ("supports_sleep_mode", "unregister_kv_caches", "restore_kv_caches")


class GpuwmConnector(KVConnectorBase_V1):
    """vLLM makes one in its scheduler and one in each worker. The package's docstring says what it
    does.

    Raises Invalid (an option is wrong) and Unsupported (`refusals`).
    """

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        releases.check_overrides(GpuwmConnector, KVConnectorBase_V1, own=_SLEEP)
        self._settings = settings.parse(vllm_config.kv_transfer_config)
        refusals.check(vllm_config, kv_cache_config)
        self._block_size = engine.block_size(kv_cache_config)
        self._scheduling: Scheduling | None = None
        self._working: Working | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduling = Scheduling(
                self._settings,
                self._block_size,
                lambda rank: regions.of_scheduler(self._settings, rank.region),
            )
            self._pool: Any = None
        else:
            self._working = Working(engine.rank_index(vllm_config), engine.recovers(vllm_config))

    # ---- the worker's half ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Raises the errors of `layouts.layout_of` and `regions.of_worker`, and Unsupported if
        nothing says which weights the engine has."""
        working, config = self._worker(), self._vllm_config
        blocks = self._kv_cache_config.num_blocks
        layout = layout_of(kv_caches, blocks, engine.block_dims(config, kv_caches))
        weights = engine.WeightsOf(
            config, kv_caches, self._settings.identity, working.weights_changed
        )
        index = engine.rank_index(config)
        working.register(
            layout,
            engine.fields(config, self._block_size, kv_caches),
            weights.text,
            self._settings.region_of(index),
            regions.of_worker(self._settings, index, layout.block_bytes, layout.device),
        )

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """True: the cache has the same addresses after it has slept, and a region does not
        sleep."""
        return True

    def unregister_kv_caches(self) -> None:
        """Does nothing: the cache is registered nowhere. Copies are in the stream of the steps, for
        whose end vLLM has waited."""

    def restore_kv_caches(self) -> None:
        """Does nothing, as `unregister_kv_caches`. vLLM has forgotten what the cache held."""

    def get_handshake_metadata(self) -> Rank | None:
        return None if self._working is None else self._working.rank

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._worker().begin(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._worker().load()

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # loads are in the stream before the step; full CUDA graphs skip this call

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        pass  # `wait_for_save` puts all layers; full CUDA graphs skip this call

    def wait_for_save(self) -> None:
        self._worker().save()

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker().invalid()

    def build_connector_worker_meta(self) -> Report | None:
        return self._worker().report()

    def _worker(self) -> Working:
        assert self._working is not None
        return self._working

    # ---- the scheduler's half ----

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        self._scheduler().set_ranks(metadata)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self._pool = gpu_block_pool

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._scheduler().matched(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler().allocated(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Step:
        return self._scheduler().step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        report = connector_output.kv_connector_worker_meta
        if report is not None:
            self._scheduler().reported(report)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._scheduler().finished(request)
        return False, None

    def reset_cache(self) -> bool | None:
        """vLLM drops its KV before this call. The regions keep theirs: it is of the weights that
        its keys stand for."""
        self._scheduler().reset(engine.is_empty(self._pool))
        return True

    def _scheduler(self) -> Scheduling:
        assert self._scheduling is not None
        return self._scheduling

    # ---- both ----

    def shutdown(self) -> None:
        for half in (self._scheduling, self._working):
            if half is not None:
                half.close()
