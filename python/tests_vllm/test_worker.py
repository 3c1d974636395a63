"""gpuwm.vllm.Worker on vLLM's own code for memory, with a stand-in for the GPU that all share."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Daemon

import gpuwm
from gpuwm._torch import registry
from gpuwm.vllm import memory

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn

GIB = memory.GIB
TOTAL = 80 * GIB
UTILIZATION = 0.92
CONTEXT = GIB // 2
ACTIVATIONS = 3 * GIB
VERSION = 16 * GIB


class Gpu:
    """The GPU of several engines, which are all of this process here. `here` is the engine that
    runs: torch's figures are its own, the GPU's are those of all."""

    def __init__(self) -> None:
        self.here = ""
        self.other = 0  # versions, and whatever is no engine's
        self.listed: dict[str, int] = {}  # the versions that gpuwmd tells of
        self.leaving: dict[str, int] = {}  # those of them that leave for an engine
        self.context: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        # what vLLM's sleeping pool has
        self.pool = types.SimpleNamespace(handle=(0, 7 * GIB, 0, 0), is_asleep=False)

    def info(self, device: Any = None, /) -> tuple[int, int]:
        used = self.other + sum(self.context.values()) + sum(self.reserved.values())
        return TOTAL - used, TOTAL

    def reserve(self, more: int) -> None:
        self.reserved[self.here] = self.reserved.get(self.here, 0) + more
        self.peak[self.here] = max(self.peak.get(self.here, 0), self.reserved[self.here])

    def reset_peak(self, device: Any = None) -> None:
        self.peak[self.here] = self.reserved.get(self.here, 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    from vllm import device_allocator

    made = Gpu()
    for name, function in {
        "get_memory_info": made.info,
        "memory_reserved": lambda device: made.reserved.get(made.here, 0),
        "memory_stats": lambda device: {
            "allocated_bytes.all.peak": made.peak.get(made.here, 0),
            "allocated_bytes.all.current": made.reserved.get(made.here, 0),
        },
        "reset_peak_memory_stats": made.reset_peak,
        "empty_cache": lambda: None,
        "synchronize": lambda: None,
    }.items():
        monkeypatch.setattr(torch.accelerator, name, function)
    pools = types.SimpleNamespace(pointer_to_data={0: made.pool}, sleep=lambda offload_tags: None)
    monkeypatch.setattr(device_allocator, "get_mem_allocator_instance", lambda: pools)
    return made


class Runner:
    """vLLM's model runner. profiling: what happens on the GPU meanwhile."""

    model_memory_usage = 0
    own = 0  # what loading allocates beside the version

    def __init__(self, gpu: Gpu, profiling: Callable[[], None]) -> None:
        self._gpu, self._profiling = gpu, profiling
        self.module = torch.nn.Module()

    def load_model(self, load_dummy_weights: bool) -> None:
        self._gpu.reserve(self.own)
        self.model_memory_usage = self.own

    def initialize_kv_cache(
        self, config: Any, kv_cache_allocation_context: Any = None
    ) -> contextlib.AbstractContextManager[None] | None:
        found: contextlib.AbstractContextManager[None] | None = kv_cache_allocation_context
        return found

    def get_model(self) -> torch.nn.Module:
        return self.module

    def profile_run(self, **how: Any) -> None:
        here = self._gpu.here
        self._gpu.reserve(ACTIVATIONS)
        self._profiling()
        self._gpu.here = here
        self._gpu.reserve(-ACTIVATIONS)


Start = Callable[..., Any]


@pytest.fixture
def start(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Start:
    """An engine's worker, whose device is ready. versions: what gpuwm holds, and the loader says
    that the engine attaches to; extra: its --model-loader-extra-config; profiling: what others do
    while it profiles."""
    from vllm.utils.mem_utils import MemorySnapshot
    from vllm.v1.worker import gpu_worker
    from vllm.v1.worker.utils import request_memory

    import gpuwm.vllm
    from gpuwm.vllm import worker as module

    gpuwm.vllm.register()

    def init_device(self: Any) -> None:
        self.init_snapshot = MemorySnapshot(device=self.device)
        self.requested_memory = request_memory(self.init_snapshot, self.cache_config)

    monkeypatch.setattr(gpu_worker.Worker, "init_device", init_device)

    def made(
        name: str,
        versions: int = 0,
        extra: dict[str, Any] | None = None,
        profiling: Callable[[], None] = lambda: None,
        cache: int | None = None,
    ) -> Any:
        found = object.__new__(module.Worker)
        gpu.listed = {"0": versions} if versions else {}
        held = module.Held(gpu.listed, gpu.leaving)
        monkeypatch.setattr(module, "held_on", lambda *_: held)
        loader = types.SimpleNamespace(get_external_weight_memory=lambda config: versions)
        monkeypatch.setattr(module, "get_model_loader", lambda config: loader)
        found.device = torch.device("cuda:0")
        found.cache_config = types.SimpleNamespace(
            gpu_memory_utilization=UTILIZATION, kv_cache_memory_bytes=cache
        )
        found.parallel_config = types.SimpleNamespace(world_size=1)
        found.model_config = types.SimpleNamespace(
            multimodal_config=None,
            enable_cumem_allocator=False,
            enable_sleep_mode="standby" not in (extra or {}),
            sleep_mode_backend="cumem",
            enable_nccl_comm_suspend=False,
            enforce_eager=True,
        )
        found.vllm_config = types.SimpleNamespace(
            load_config=types.SimpleNamespace(model_loader_extra_config=extra or {}),
            weight_transfer_config=None,
            kv_transfer_config=None,
            compilation_config=None,
            model_config=found.model_config,
        )
        found.model_runner = Runner(gpu, profiling)
        gpu.here = name
        gpu.context[name] = CONTEXT
        found.init_device()
        return found

    return made


@pytest.fixture
def load(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Loads an engine's model, which lies in versions of these sizes then."""
    from vllm.v1.worker import gpu_worker

    monkeypatch.setattr(
        gpu_worker.Worker,
        "load_model",
        lambda self, *, load_dummy_weights=False: self.model_runner.load_model(load_dummy_weights),
    )

    def loaded(name: str, worker: Any, *versions: int) -> None:
        handles = [
            types.SimpleNamespace(
                version=types.SimpleNamespace(id=b"%d" % number, rank=0, bytes=size)
            )
            for number, size in enumerate(versions)
        ]
        # A version counts once: it may have two mappings, and gpuwmd may list it or hide it.
        monkeypatch.setattr(registry, "handles_of", lambda model: handles + handles[:1])
        gpu.here = name
        worker.load_model()

    return loaded


def share_of(engines: int, versions: int) -> int:
    return memory.budget(TOTAL, UTILIZATION, versions, memory.Sharing(engines)) - ACTIVATIONS


def test_an_engine_alone_fills_what_the_version_leaves(gpu: Gpu, start: Start, load: Any) -> None:
    gpu.other = VERSION
    worker = start("a", VERSION)
    load("a", worker, VERSION)
    assert worker.determine_available_memory() == share_of(1, VERSION)
    assert worker.cache_config.gpu_memory_utilization == UTILIZATION


def test_the_engine_that_builds_has_the_cache_of_those_that_attach(
    gpu: Gpu, start: Start, load: Any
) -> None:
    worker = start("a")
    gpu.other = VERSION  # made while it loads
    load("a", worker, VERSION)
    assert worker.determine_available_memory() == share_of(1, VERSION)


def test_what_an_engine_alone_has_beside_torch_is_measured(
    gpu: Gpu, start: Start, load: Any
) -> None:
    def kernels() -> None:
        gpu.context["a"] += GIB

    gpu.other = VERSION
    worker = start("a", VERSION, profiling=kernels)
    load("a", worker, VERSION)
    assert worker.determine_available_memory() == share_of(1, VERSION) - GIB


def test_what_loading_allocates_beside_the_version_counts(
    gpu: Gpu, start: Start, load: Any
) -> None:
    for name, extra in (("a", {}), ("b", {"engines": 2})):
        gpu.other = VERSION
        worker = start(name, VERSION, extra)
        worker.model_runner.own = GIB
        load(name, worker, VERSION)
        engines = len(extra) + 1
        assert worker.determine_available_memory() == share_of(engines, VERSION) - GIB
        gpu.reserved.clear()
        gpu.context.clear()


def test_a_version_of_the_draft_counts_too(gpu: Gpu, start: Start, load: Any) -> None:
    gpu.other = VERSION + GIB
    worker = start("a", VERSION)
    load("a", worker, VERSION, GIB)
    assert worker.determine_available_memory() == share_of(1, VERSION + GIB)


def test_what_gpuwm_holds_for_others_is_no_engines(gpu: Gpu, start: Start, load: Any) -> None:
    gpu.other = VERSION
    worker = start("a", VERSION)
    gpu.other += 30 * GIB
    gpu.listed["another"] = 30 * GIB
    load("a", worker, VERSION)
    assert worker.determine_available_memory() == share_of(1, VERSION + 30 * GIB)


def test_four_engines_that_start_at_once_have_equal_caches(
    gpu: Gpu, start: Start, load: Any
) -> None:
    """Each profiles while others grow and shrink; the first builds the version."""
    names = ["a", "b", "c", "d"]
    expected = share_of(4, VERSION)

    def others_grow() -> None:
        for name, change in (("b", 9 * GIB), ("c", 5 * GIB), ("d", 2 * GIB)):
            if name != gpu.here:
                gpu.reserved[name] = gpu.reserved.get(name, 0) + change

    def others_shrink() -> None:
        for name in names:
            if name != gpu.here and gpu.reserved.get(name):
                gpu.reserved[name] -= GIB

    extra = {"engines": 4}
    workers = {"a": start("a", 0, extra, others_grow)}
    gpu.other = VERSION
    load("a", workers["a"], VERSION)
    for name in names[1:]:
        workers[name] = start(name, VERSION, extra, others_shrink)
        load(name, workers[name], VERSION)
    for name in names:
        gpu.here = name
        gpu.reserved[name] = 0  # what it grew by above was for the others to see
        assert workers[name].determine_available_memory() == expected
    assert torch.accelerator.get_memory_info == gpu.info


def test_engines_one_after_the_other_have_equal_caches(gpu: Gpu, start: Start, load: Any) -> None:
    gpu.other = VERSION
    for name in ("a", "b", "c", "d"):
        worker = start(name, VERSION, {"engines": 4})
        load(name, worker, VERSION)
        cache = worker.determine_available_memory()
        assert cache == share_of(4, VERSION)
        gpu.reserve(cache + ACTIVATIONS)
    assert gpu.info()[0] >= 0


def test_an_engine_that_does_not_fit_beside_another_is_refused(gpu: Gpu, start: Start) -> None:
    gpu.other = VERSION + 40 * GIB
    with pytest.raises(gpuwm.NoRoom, match='"engines": 2'):
        start("a", VERSION)


def test_a_gpu_that_fills_meanwhile_is_named(gpu: Gpu, start: Start, load: Any) -> None:
    def stranger() -> None:
        gpu.other += 60 * GIB

    worker = start("a", VERSION, {"engines": 2}, stranger)
    load("a", worker, VERSION)
    with pytest.raises(gpuwm.NoRoom, match="another process has filled it meanwhile"):
        worker.determine_available_memory()


def test_versions_of_engines_that_sleep_make_room(
    gpu: Gpu, start: Start, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import sleep_mode

    asked: list[int] = []

    def take_room(room: int) -> None:
        asked.append(room)
        gpu.other = VERSION  # the other version has left

    monkeypatch.setattr(sleep_mode, "take_room", take_room)
    gpu.other = VERSION + 40 * GIB
    gpu.leaving["asleep"] = 40 * GIB
    worker = start("a", VERSION)
    load("a", worker, VERSION)
    assert worker.determine_available_memory() == share_of(1, VERSION)
    assert asked == [share_of(1, VERSION)]


def test_a_cache_whose_size_the_user_chose_is_left_alone(gpu: Gpu, start: Start, load: Any) -> None:
    gpu.other = 70 * GIB
    worker = start("a", VERSION, cache=2 * GIB)
    load("a", worker, VERSION)
    assert worker.determine_available_memory() == 2 * GIB


@pytest.mark.parametrize("change", [-5 * GIB, 5 * GIB])
def test_sleeping_does_not_see_other_engines(gpu: Gpu, start: Start, change: int) -> None:
    class Backend:
        def suspend(self, level: int) -> None:
            gpu.other -= change

    worker = start("a", extra={"engines": 2})
    gpu.other = 10 * GIB
    worker._sleep_mode_backend = Backend()
    worker.sleep(1)
    assert torch.accelerator.get_memory_info == gpu.info


def test_what_sleeps_counts_as_given_back(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch still counts it as reserved."""
    from vllm.v1.worker import gpu_worker

    said: list[str] = []

    class Backend:
        def suspend(self, level: int) -> None:
            gpu.pool.is_asleep = True

    worker = start("a", extra={"engines": 2})
    gpu.reserve(9 * GIB)
    monkeypatch.setattr(gpu_worker.logger, "info", lambda text, *values: said.append(text % values))
    worker._sleep_mode_backend = Backend()
    worker.sleep(1)
    assert said == ["Sleep mode freed 7.0 GiB memory, 2.0 GiB memory is still in use."]


def test_an_engine_does_not_sleep_with_the_one_before_it_in_its_process(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.worker import gpu_worker

    from gpuwm.vllm import sleep_mode

    monkeypatch.setattr(gpu_worker.Worker, "execute_model", lambda self, step: step)
    worker = start("a")
    sleep_mode.Backend().suspend()
    with pytest.raises(gpuwm.Busy, match="this engine sleeps"):
        worker.execute_model(7)
    assert start("b").execute_model(7) == 7


def test_another_process_can_fail_the_sleep_of_an_engine_alone(gpu: Gpu, start: Start) -> None:
    class Backend:
        def suspend(self, level: int) -> None:
            gpu.other += 5 * GIB

    worker = start("a")
    worker._sleep_mode_backend = Backend()
    with pytest.raises(AssertionError, match="Memory usage increased"):
        worker.sleep(1)  # "engines": 2 says that another process is there


def test_a_standby_starts_beside_an_engine_that_has_the_memory(
    gpu: Gpu, start: Start, load: Any
) -> None:
    extra = {"standby": "/run/a.lock"}
    active = start("a", VERSION, extra)
    load("a", active, VERSION)
    cache = active.determine_available_memory()
    gpu.other = VERSION + cache
    standby = start("b", VERSION, extra)
    load("b", standby, VERSION)
    assert standby.determine_available_memory() == cache
    how = memory.Sharing(2, standby=True)
    assert cache == memory.budget(TOTAL, UTILIZATION, VERSION, how) - ACTIVATIONS


def test_only_an_engine_of_a_standby_group_can_occupy(gpu: Gpu, start: Start) -> None:
    worker = start("a")
    worker.rank = 1
    answer = worker.gpuwm_occupy("0")
    assert (answer["rank"], answer["error"]) == (1, "Unsupported")
    assert "no standby group" in answer["message"]


def test_a_standby_can_not_sleep(gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuwm.vllm import cache

    def check(config: Any) -> None:
        raise gpuwm.Unsupported("vLLM's sleep mode")

    monkeypatch.setattr(cache, "check", check)
    start("a")
    with pytest.raises(gpuwm.Unsupported, match="sleep mode"):
        start("b", extra={"standby": "/run/a.lock"})


@pytest.mark.parametrize("seam", [False, True])
def test_the_cache_of_a_standby_is_reserved_and_occupied(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch, seam: bool
) -> None:
    from vllm.v1.worker import gpu_worker

    from gpuwm.vllm import cache, extension, releases

    made: list[Any] = []
    called: list[str] = []

    class Cache:
        def __init__(self, *how: Any) -> None:
            made.append(how)

        @contextlib.contextmanager
        def reserved(self) -> Any:
            called.append("reserved")
            yield

        def check_reserved(self) -> None:
            called.append("check")

        def vacate(self) -> None:
            called.append("vacate")

        def occupy(self, wait: float) -> dict[str, Any]:
            return {"bytes": 5, "seconds": wait}

    monkeypatch.setattr(cache, "check", lambda config: None)
    monkeypatch.setattr(cache, "Cache", Cache)
    model = types.SimpleNamespace(
        mapping=types.SimpleNamespace(version=types.SimpleNamespace(device="GPU-1"))
    )
    monkeypatch.setattr(extension.Extension, "_gpuwm_loaded", lambda self: model)
    for each in ("compile_or_warm_up_model", "execute_dummy_batch"):
        told = functools.partialmethod(lambda self, name: called.append(name), each)
        monkeypatch.setattr(gpu_worker.Worker, each, told)

    def initialize_from_config(self: Any, config: Any) -> None:
        context = self.model_runner.initialize_kv_cache(config)
        assert (context is not None) == seam
        if context is not None:
            with context:
                pass

    monkeypatch.setattr(gpu_worker.Worker, "initialize_from_config", initialize_from_config)
    monkeypatch.setattr(releases, "takes_allocation_context", lambda initialize: seam)
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: called.append("empty_cache"))
    worker = start("a", extra={"standby": "/run/a.lock"})
    worker.rank = 0
    worker.initialize_from_config("config")
    assert made == [("config", "GPU-1", worker.device)]
    worker.compile_or_warm_up_model()
    assert called == [
        "reserved",
        *["check"] * seam,
        "compile_or_warm_up_model",
        "empty_cache",
        "vacate",
    ]
    assert "initialize_kv_cache" not in vars(worker.model_runner)
    monkeypatch.setattr(gpu_worker.Worker, "execute_model", lambda self, step: step)
    for compute in (functools.partial(worker.execute_model, 7), worker.execute_dummy_batch):
        with pytest.raises(gpuwm.Unsupported, match="a standby got a request"):
            compute()
    assert worker.gpuwm_occupy("0.5") == {"rank": 0, "bytes": 5, "seconds": 0.5}
    assert worker.execute_model(7) == 7
    worker.execute_dummy_batch()
    assert called[-1] == "execute_dummy_batch"


def test_an_engine_alone_sleeps_with_vllms_own_figures(gpu: Gpu, start: Start) -> None:
    seen = []

    class Backend:
        def suspend(self, level: int) -> None:
            seen.append(torch.accelerator.get_memory_info)

    worker = start("a")
    worker._sleep_mode_backend = Backend()
    worker.sleep(1)
    assert seen == [gpu.info]


def test_a_start_that_fails_gives_its_claim_up(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import model_loader

    given_up: list[bool] = []
    monkeypatch.setattr(model_loader, "forget", lambda: given_up.append(True), raising=False)
    start("a", VERSION)
    assert given_up == []
    gpu.other = VERSION + 40 * GIB
    with pytest.raises(gpuwm.NoRoom):
        start("b", VERSION)
    assert given_up == [True]


def test_another_vllm_is_refused_with_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.worker import gpu_worker
    from vllm.v1.worker import utils as worker_utils

    from gpuwm.vllm import worker as module

    def request_memory(init_snapshot: Any, cache_config: Any, external: int = 0) -> int:
        return 0

    def sleep(self: Any) -> None:
        pass

    monkeypatch.setattr(worker_utils, "request_memory", request_memory)
    monkeypatch.delattr(gpu_worker.Worker, "determine_available_memory")
    monkeypatch.setattr(gpu_worker.Worker, "sleep", sleep)
    with pytest.raises(gpuwm.Unsupported) as caught:
        module.check_vllm()
    for problem in (
        "request_memory takes init_snapshot, cache_config, external;",
        "Worker.determine_available_memory does not use self.init_snapshot;",
        "sleep does not use torch.accelerator.get_memory_info(",
    ):
        assert problem in caught.value.message
    assert "a release of vLLM that gpuwm supports: 0.25.1, 0.26.0," in caught.value.detail


def test_a_plan_of_an_earlier_start_is_refused_where_engines_share(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vllm.envs as envs

    monkeypatch.setattr(envs, "VLLM_ENABLE_STARTUP_PLAN", True, raising=False)
    start("a")
    with pytest.raises(gpuwm.Unsupported, match="VLLM_ENABLE_STARTUP_PLAN"):
        start("b", extra={"engines": 2})


def test_engines_that_nobody_counts_are_refused(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import model_loader, refusals, releases

    def check(**extra: Any) -> None:
        refusals.check_sharing(extra, model_loader._worker_counts)

    monkeypatch.setattr(model_loader, "_worker_counts", False)
    monkeypatch.setattr(releases, "asks_loader", lambda: False)
    check(engines=1)
    with pytest.raises(gpuwm.Unsupported, match="add --worker-cls gpuwm.vllm.Worker"):
        check(engines=2)
    with pytest.raises(gpuwm.Unsupported, match='"engine_overhead_gib"'):
        check(engine_overhead_gib=1)
    with pytest.raises(gpuwm.Unsupported, match="python -m gpuwm.vllm standby"):
        check(standby="/lock")
    monkeypatch.setattr(releases, "asks_loader", lambda: True)
    check(engines=2)
    monkeypatch.setattr(releases, "asks_loader", lambda: False)
    start("a", extra={"engines": 2})
    check(engines=2)


def test_what_gpuwm_holds_is_asked_of_gpuwmd(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import worker as module

    arrays = {"w": torch.zeros(1 << 20)}
    version = gpuwm.publish(arrays, "held@v1", bind=False)
    found = module.held_on(torch.device("cpu"), {}, sleeps=True).staying
    assert found[version.id] >= 4 << 20
    monkeypatch.setenv("GPUWM_SOCKET", "/nowhere")
    with pytest.raises(gpuwm.Unreachable):
        module.held_on(torch.device("cpu"), {}, sleeps=False)
    nothing = module.held_on(torch.device("cpu"), {"fallback": "auto"}, sleeps=False)
    assert nothing == ({}, {})


def test_the_package_gives_the_worker_to_vllm() -> None:
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.worker import gpu_worker

    assert issubclass(resolve_obj_by_qualname("gpuwm.vllm.Worker"), gpu_worker.Worker)


def test_what_it_has_compiled_is_kept_when_all_is_compiled(
    gpu: Gpu, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.worker import gpu_worker

    from gpuwm.vllm import compiled, model_loader

    steps: list[Any] = []
    monkeypatch.setattr(
        gpu_worker.Worker, "compile_or_warm_up_model", lambda self: steps.append("compiled")
    )
    monkeypatch.setattr(compiled, "keep", steps.append)
    monkeypatch.setattr(model_loader, "all_loaded", lambda: ["the model"])
    start("A").compile_or_warm_up_model()
    assert steps == ["compiled", ["the model"]]
