"""vLLM's GPU worker with right figures for memory that gpuwm holds.

    vllm serve MODEL --load-format gpuwm --worker-cls gpuwm.vllm.Worker
    … --model-loader-extra-config '{"engines": 4}'      if four engines share the GPU

vLLM 0.25 to 0.31 refuse to start when less than `--gpu-memory-utilization` of the GPU is free, and
count weights outside of torch's memory as nothing. Newer releases ask the loader how large the
weights are, which is enough for one engine on a GPU that has no other version.
`gpuwm.vllm.memory` has the arithmetic. What this class changes, in every release:

- vLLM's check at the start is passed over, and made with the size of what gpuwm holds instead.
- What an engine may fill is computed when the model is loaded, since an engine that builds the
  version knows its size only then. Every version on the GPU counts, once: a draft's, a plain
  checkpoint's, another model's.
- If several engines share the GPU, vLLM's profile reads what *this process's torch* has reserved,
  not what is free on the GPU: engines that start at once do not see each other grow.
- A sleep parks weights that lie in gpuwm's memory (`gpuwm.vllm.sleep_mode`), with vLLM's default
  backend and with `--sleep-mode-backend gpuwm`.
- If several engines share the GPU, or weights are parked, vLLM's sleep reads the same figures, so
  another engine that grows meanwhile does not fail vLLM's assertion.
- If a sleep fails in any rank, all ranks are awake again. If a wake fails, all ranks sleep on.
- An engine of a standby group ("standby" in --model-loader-extra-config) starts with addresses for
  its KV cache, and gets memory for them when it takes over: `gpuwm.vllm.cache`.

Only public methods of vLLM's Worker are overridden, and only public attributes are set. Importing
this module imports vLLM; it raises gpuwm.Unsupported if that vLLM is not one that is described.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from vllm.model_executor.model_loader import get_model_loader
from vllm.v1.worker import utils as worker_utils

from .. import _connection, errors
from .._c import devices
from .._torch import registry
from . import cache as kv_cache
from . import compiled, memory, model_loader, refusals, releases, sleep_mode, transfer
from .answers import answering
from .extension import Extension
from .lifeline import Lifeline

if TYPE_CHECKING:
    from ._bases import MemorySnapshot
    from ._bases import Worker as VllmWorker
else:
    from vllm.utils.mem_utils import MemorySnapshot
    from vllm.v1.worker.gpu_worker import Worker as VllmWorker

log: logging.Logger = logging.getLogger("vllm.gpuwm")

# A part of the GPU that is free on any GPU: vLLM's own check does not know of versions.
UNCHECKED_UTILIZATION = 1e-9


def check_vllm() -> None:
    """Raises Unsupported if this vLLM's worker is not one that this module overrides."""
    asks = releases.asks_loader()
    problems = releases.text_problems(releases.USES + releases.USES_ASKING * asks)
    parameters = list(inspect.signature(worker_utils.request_memory).parameters)
    if parameters != ["init_snapshot", "cache_config", *["external_weight_memory"] * asks]:
        problems.insert(0, f"request_memory takes {', '.join(parameters)}")
    if problems:
        raise releases.unsupported("gpuwm.vllm.Worker", problems)


check_vllm()


class Held(NamedTuple):
    """What gpuwm holds on a GPU: the bytes of each version by its id, and of those that leave when
    their room is needed."""

    staying: dict[str, int]
    leaving: dict[str, int]


def held_on(device: torch.device, extra_config: dict[str, Any], sleeps: bool) -> Held:
    """What gpuwm holds on a GPU, see `memory.held`. sleeps: versions leave for this engine that
    only engines hold which sleep. Raises Unreachable if there is no gpuwmd. With "fallback" in the
    loader's configuration that counts as no versions."""
    try:
        client = _connection.connect(extra_config.get("socket"), name="vllm")
        with client:
            name = devices.resolve(str(device), client) or devices.HOST
            listing = client.list()
            asleep = memory.parked(listing, client._query("own_clients")["clients"])
            everything = memory.held(listing, name)
            staying = memory.held(listing, name, asleep if sleeps else ())
            return Held(
                staying, {each: everything[each] for each in everything.keys() - staying.keys()}
            )
    except errors.Error:
        if extra_config.get("fallback") is None:
            raise
        return Held({}, {})


class Worker(Lifeline, Extension, VllmWorker):
    """vLLM's worker. The module's docstring says what differs. Every method raises what vLLM's
    raises, and gpuwm.NoRoom with both figures."""

    gpu_cache: kv_cache.Cache | None = None
    gpu_sharing: memory.Sharing
    # vLLM's, which are set anew here
    init_snapshot: MemorySnapshot
    requested_memory: int
    gpu_stands_by: bool = False  # whether it has warmed up, and has no memory for its KV cache yet

    def init_device(self) -> None:
        """With load format gpuwm it also decides whether this engine attaches or builds, and waits
        for an engine that builds. Raises NoRoom if less is free than this engine's part."""
        self.gpu_sharing = memory.sharing(self._extra_config(), self.parallel_config.world_size)
        if self.gpu_sharing.standby:
            kv_cache.check(self.vllm_config)
        refusals.check_plan(self.gpu_sharing)
        sleep_mode.forget()
        if self.model_config.enable_sleep_mode:
            sleep_mode.check()
        model_loader.leave_counting_to_the_worker()
        cache = self.cache_config
        asked = cache.gpu_memory_utilization
        cache.gpu_memory_utilization = UNCHECKED_UTILIZATION
        try:
            super().init_device()
            cache.gpu_memory_utilization = asked
            self._ask_and_check()
        except BaseException:
            # This engine may be the one that was to build, and others wait for it.
            model_loader.forget()
            raise
        finally:
            cache.gpu_memory_utilization = asked

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Raises NoRoom if the versions and this engine do not fit."""
        super().load_model(load_dummy_weights=load_dummy_weights)
        if self.model_config.enable_sleep_mode:
            with self._parking():
                # vLLM 0.33 makes its backend when it reads this attribute, which may be in discard.
                getattr(self, "sleep_mode_backend", None)
        cache = self.cache_config
        if cache.kv_cache_memory_bytes:
            return
        versions = self.version_bytes(self._models())
        total, utilization = self.init_snapshot.total_memory, cache.gpu_memory_utilization
        self.requested_memory = memory.budget(total, utilization, versions, self.gpu_sharing)
        log.info(
            "gpuwm: this engine has %s GiB for its own memory, beside %s GiB that gpuwm holds on "
            "this GPU; engines on this GPU: %d",
            memory.gib(self.requested_memory),
            memory.gib(versions),
            self.gpu_sharing.engines,
        )

    def determine_available_memory(self) -> int:
        """The bytes for the KV cache. Raises NoRoom if they are not free."""
        if self.cache_config.kv_cache_memory_bytes:
            return int(super().determine_available_memory())
        several = self.gpu_sharing.engines > 1 or self.gpu_sharing.standby
        with self._own_view() if several else contextlib.nullcontext():
            # From here on vLLM counts what grows. The versions are there already, and counted.
            gc.collect()
            torch.accelerator.empty_cache()
            self.init_snapshot = MemorySnapshot(device=self.device)
            if releases.counts_consumed():
                # Nothing else counts what this engine has allocated until now.
                own = torch.accelerator.memory_reserved(self.device)
                self.init_snapshot.free_memory += own
            found = int(super().determine_available_memory())
        if self.model_config.enable_sleep_mode:
            sleep_mode.take_room(found)  # versions leave that only engines hold which sleep
        if not self.gpu_sharing.standby:
            memory.check_cache(torch.accelerator.get_memory_info(self.device)[0], found)
        return found

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Raises Unsupported if the cache of a standby engine can't be reserved, and the errors of
        the reservation: NoRoom, Error."""
        if not self.gpu_sharing.standby:
            super().initialize_from_config(kv_cache_config)
            return
        self.gpu_cache = kv_cache.Cache(kv_cache_config, self.gpu_device_id(), self.device)
        with self._allocating_in(self.gpu_cache):
            super().initialize_from_config(kv_cache_config)

    @contextlib.contextmanager
    def _allocating_in(self, cache: kv_cache.Cache) -> Iterator[None]:
        """Inside, the model runner allocates the KV cache in the reservation."""
        runner = self.model_runner
        initialize = runner.initialize_kv_cache
        if not releases.takes_allocation_context(initialize):
            with cache.reserved():
                yield
            return

        @functools.wraps(initialize)
        def reserving(*arguments: Any, **named: Any) -> Any:
            # A standby sleeps in no pool of vLLM's, so that this context replaces none.
            named[releases.ALLOCATION_CONTEXT] = cache.reserved()
            return initialize(*arguments, **named)

        runner.initialize_kv_cache = reserving
        try:
            yield
        finally:
            del runner.initialize_kv_cache
        cache.check_reserved()

    def compile_or_warm_up_model(self) -> Any:
        found = super().compile_or_warm_up_model()
        compiled.keep(model_loader.all_loaded())
        if self.gpu_cache is not None:
            # the engine that serves can use what the profile needed
            torch.accelerator.empty_cache()
            self.gpu_cache.vacate()
            self.gpu_stands_by = True
        return found

    def execute_model(self, *arguments: Any, **named: Any) -> Any:
        """Raises Unsupported for a standby, which has no KV cache yet: a request came past its
        gate. Raises Busy for an engine that sleeps: nothing is mapped where it would read."""
        self._check_serves()
        return super().execute_model(*arguments, **named)

    def execute_dummy_batch(self) -> None:
        """Raises Unsupported and Busy as execute_model does."""
        self._check_serves()
        super().execute_dummy_batch()

    def sleep(self, level: int = 1) -> None:
        """Raises Unsupported without --enable-sleep-mode, and the errors of
        `sleep_mode.Backend.suspend`: the engine is awake then."""
        self._told_by_the_last("sleep", lambda: self._sleep(level))

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Raises the errors of `sleep_mode.Backend.resume`: the engine sleeps then, and the call
        may be repeated."""
        self._told_by_the_last("wake", lambda: self._wake_up(tags))

    def _sleep(self, level: int) -> None:
        self._check_sleeps()
        failed: BaseException | None = None
        try:
            with self._sleeping_view():
                super().sleep(level)
        except BaseException as error:
            failed = error
        self._all_ranks("sleep", failed, lambda: super(Worker, self).wake_up())

    def _wake_up(self, tags: list[str] | None) -> None:
        failed: BaseException | None = None
        try:
            with self._parking():
                super().wake_up(tags)
        except BaseException as error:
            failed = error
        self._all_ranks("wake", failed, sleep_mode.sleep_on)
        sleep_mode.stay_awake()

    def _all_ranks(self, what: str, failed: BaseException | None, undo: Callable[[], None]) -> None:
        """The end of a step of sleep mode, which vLLM does not undo: if it failed in a rank, all
        ranks undo it, and all of them raise. With other weights vLLM's own way counts."""
        models = model_loader.all_loaded()
        if not models:
            if failed is not None:
                raise failed
            return
        try:
            sleep_mode.ranks_of(models).agree(what, failed)
        except BaseException:
            with self._parking():
                undo()
            raise

    def _told_by_the_last(self, what: str, step: Callable[[], None]) -> None:
        """The executor of vLLM 0.25 reads the answers of several ranks only up to the first error,
        and takes the others for those of its next call. So only the last rank raises."""
        parallel = self.parallel_config
        # With other weights, the ranks do not agree: the others may have done it.
        if not model_loader.all_loaded() or parallel.rank == parallel.world_size - 1:
            step()
            return
        try:
            step()
        except Exception as error:
            log.warning("gpuwm: the last rank tells that the engine could not %s: %s", what, error)

    def _check_sleeps(self) -> None:
        if self.gpu_sharing.standby:
            raise errors.Unsupported(
                "an engine of a standby group does not sleep: its KV cache is gpuwm's, and without "
                "it the engine could not take over",
                "end it instead: the others of its group go on",
            )
        if not self.model_config.enable_sleep_mode:
            raise errors.Unsupported(
                "this engine's KV cache lies in no pool that could sleep",
                "start it with --enable-sleep-mode",
            )

    @contextlib.contextmanager
    def _sleeping_view(self) -> Iterator[None]:
        parks = bool(model_loader.all_loaded())
        several = self.gpu_sharing.engines > 1
        with self._parking(), self._own_view() if parks or several else contextlib.nullcontext():
            yield

    @contextlib.contextmanager
    def _parking(self) -> Iterator[None]:
        """Inside, vLLM looks for gpuwm's backend. It does so at the first sleep. Outside it has the
        name of its own, for which it looks when it captures CUDA graphs."""
        config = self.vllm_config.model_config
        if config.sleep_mode_backend != sleep_mode.VLLMS:
            yield
            return
        config.sleep_mode_backend = sleep_mode.NAME
        try:
            yield
        finally:
            config.sleep_mode_backend = sleep_mode.VLLMS

    # ---- not of vLLM's Worker ----

    @answering
    def gpuwm_occupy(self, wait: str) -> dict[str, Any]:
        """Gives the KV cache of a standby engine its memory. Returns `bytes` and `seconds`. Call it
        before the first request. wait: seconds, as text, to wait for memory that the engine that
        served is giving back. Raises NoRoom, which says how much is missing, and Unsupported if
        this engine is in no standby group."""
        if self.gpu_cache is None:
            raise errors.Unsupported(
                "this engine is of no standby group: its KV cache has memory from the start",
                "start it with python -m gpuwm.vllm standby",
            )
        answer = self.gpu_cache.occupy(float(wait))
        self.gpu_stands_by = False
        return answer

    @answering
    def gpuwm_asleep(self) -> dict[str, Any]:
        """Returns `asleep`: whether this rank's memory sleeps, or a part of it. `device`: gpuwmd's
        name of its GPU, or None if no model lies in gpuwm's memory."""
        models = model_loader.all_loaded()
        device = str(models[0].mapping.version.device) if models else None
        return {"asleep": sleep_mode.is_asleep(), "device": device}

    def _check_serves(self) -> None:
        if self.gpu_stands_by:
            raise errors.Unsupported(
                "a standby got a request: its KV cache has no memory before it takes over",
                "start it with python -m gpuwm.vllm standby, whose gate lets no request pass",
            )
        if sleep_mode.is_asleep():
            raise errors.Busy("this engine sleeps, and got a step", "wake it up first")

    def gpu_device_id(self) -> str:
        """gpuwmd's name of this worker's GPU, which has the version that the model lies in."""
        return str(self._gpuwm_loaded().mapping.version.device)

    def _ask_and_check(self) -> None:
        if not releases.asks_loader():
            loader = get_model_loader(self.vllm_config.load_config)
            ask = getattr(loader, "get_external_weight_memory", None)
            if ask is not None:  # it is gpuwm's
                ask(self.vllm_config)
        cache = self.cache_config
        if cache.kv_cache_memory_bytes:
            return  # the user has chosen the size of the KV cache, and vLLM looks at nothing else
        if self.gpu_sharing.standby:
            return  # the engine that serves has the memory that this one will get
        free, total = torch.accelerator.get_memory_info(self.device)
        utilization = cache.gpu_memory_utilization
        held = self._held()
        free += sum(held.leaving.values())
        versions = sum(held.staying.values())
        memory.check_free(free, total, utilization, versions, self.gpu_sharing)

    def version_bytes(self, models: Iterable[torch.nn.Module] = ()) -> int:
        """The bytes of all versions that stay on this worker's GPU: those that gpuwmd lists, and
        those in which these models lie, each once. Raises what `held_on` raises."""
        found = dict(self._held().staying)
        for model in models:
            for handle in registry.handles_of(model):
                version = handle.version
                found.setdefault(bytes(version.id).decode(), version.bytes)
        return sum(found.values())

    def _held(self) -> Held:
        return held_on(self.device, self._extra_config(), self.model_config.enable_sleep_mode)

    def _models(self) -> list[torch.nn.Module]:
        """The target and, with either of vLLM's model runners, the draft."""
        runner = self.model_runner
        drafter = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
        models = [runner.get_model(), getattr(drafter, "model", None)]
        return [model for model in models if isinstance(model, torch.nn.Module)]

    def _extra_config(self) -> dict[str, Any]:
        extra = self.vllm_config.load_config.model_loader_extra_config
        return extra if isinstance(extra, dict) else {}

    @contextlib.contextmanager
    def _own_view(self) -> Iterator[None]:
        """Inside, torch tells vLLM that everything which this process's torch has not reserved, or
        which sleeps, is free on this worker's GPU, whatever other processes do."""
        real = torch.accelerator.get_memory_info
        own = torch.device(self.device)
        pools = self.model_config.enable_sleep_mode

        def info(device: Any = None, /) -> tuple[int, int]:
            found = real() if device is None else real(device)
            if device is not None and torch.device(device) != own:
                return found
            asleep = sleep_mode.asleep_bytes() if pools else 0
            return found[1] - torch.accelerator.memory_reserved(own) + asleep, found[1]

        torch.accelerator.get_memory_info = info
        try:
            yield
        finally:
            torch.accelerator.get_memory_info = real


# A step of weight transfer that fails in all ranks is told by the last one.
for _step in transfer.STEPS:
    if hasattr(VllmWorker, _step):
        setattr(Worker, _step, transfer.last_rank_tells(getattr(VllmWorker, _step)))
releases.check_overrides(Worker, VllmWorker, own=("version_bytes",))
