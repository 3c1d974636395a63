"""What would write into shared weights is refused before a byte has changed."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from conftest import Daemon

import gpuwm
from tests_engines.engines import Engine
from tests_engines.starting import Start

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn


def check_refuses(engine: Engine) -> None:
    before = engine.loaded()
    for way in engine.ask("ways"):
        said = engine.ask("write", way)
        assert "read-only (load format gpuwm)" in said, (way, said)
        assert engine.ask("describe") == before, way
    assert engine.ask("shared")


def test_every_way_is_refused_before_a_byte_changes(daemon: Daemon, start: Start) -> None:
    """In the engine that built the version, and in one that attached."""
    for mode in ("save", "load"):
        extra = {"ref": "guarded@v1", "mode": mode}
        check_refuses(start("dense", load_format="gpuwm", extra=extra))


def test_sleep_may_restore_buffers(daemon: Daemon, start: Start) -> None:
    engine = start("dense", load_format="gpuwm", extra={"ref": "asleep@v1"})
    before = engine.loaded()
    engine.ask("restore_buffers")
    assert engine.ask("describe") == before


def test_an_engine_with_memory_of_its_own_may_write(
    daemon: Daemon, start: Start, tmp_path: pathlib.Path
) -> None:
    """The guards are there, and let it pass."""
    away = {"GPUWM_SOCKET": str(tmp_path / "nobody.sock")}
    extra = {"ref": "m@v1", "fallback": "auto"}
    engine = start("dense", load_format="gpuwm", extra=extra, environment=away)
    for way in ("model", "reload from an iterator"):
        assert engine.ask("write", way) == ""


NEEDED = (
    ("vllm.model_executor.model_loader.reload.layerwise", "initialize_layerwise_reload"),
    ("vllm.v1.worker.gpu_worker", "Worker.reload_weights"),
)


@pytest.mark.parametrize(("module", "name"), NEEDED)
def test_a_renamed_function_is_refused(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    from gpuwm.vllm import guards

    guards.check()
    monkeypatch.delattr(f"{module}.{name}")
    with pytest.raises(gpuwm.Unsupported, match=rf"it has no {module}\.{name}.*(?s:.)*0\.33\.0"):
        guards.check()


def test_a_method_about_weights_that_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.worker import gpu_worker

    from gpuwm.vllm import guards

    guards.check()
    monkeypatch.setattr(gpu_worker.Worker, "begin_weight_update", lambda self: None, raising=False)
    with pytest.raises(gpuwm.Unsupported, match="its worker has begin_weight_update"):
        guards.check()


def test_nothing_is_loaded_or_elected_without_a_guard(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the engine may fall back: it would have no guards then."""
    from gpuwm.vllm import engines, model_loader, refusals, settings

    def check(*_: Any) -> None:
        raise AssertionError("the guards come first")

    before = daemon.admin.list()
    monkeypatch.setattr(refusals, "check", check)
    monkeypatch.delattr("vllm.v1.worker.gpu_worker.Worker.reload_weights")
    for given in (settings.Settings(), settings.Settings(ref="m@v1", mode="load")):
        load: Any = object.__new__(engines.Load)
        with pytest.raises(gpuwm.Unsupported, match="it has no vllm"):
            model_loader._Steps(load, given, None).check()
    assert daemon.admin.list() == before


def test_an_override_that_nobody_calls_is_refused() -> None:
    from gpuwm.vllm import releases

    class Theirs:
        def load(self) -> None:
            """Loads."""

    class Ours(Theirs):
        def load(self) -> None:
            """Loads from gpuwm."""

        def load_more(self) -> None:
            """Had this name in an older release."""

    releases.check_overrides(Ours, Theirs, own=("load_more",))
    with pytest.raises(gpuwm.Unsupported, match="Theirs has no load_more"):
        releases.check_overrides(Ours, Theirs)
