"""The flow of a load, with an engine that has no code of vLLM or SGLang."""

from __future__ import annotations

import itertools
import logging
import math
import time
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pytest
from conftest import Daemon

import gpuwm
from gpuwm._mapping import Mapping as Attached
from gpuwm.engines import election, names
from gpuwm.engines import engine as engines
from gpuwm.engines.ranks import RankEnded, Ranks
from gpuwm.engines.raw import WHOLE, Share
from gpuwm.engines.settings import Settings

torch = pytest.importorskip("torch")
from gpuwm.engines import load_flow, publication  # noqa: E402
from gpuwm.engines.postprocess import Replay, Step  # noqa: E402

_count = itertools.count()
DISK = "the test's disk is broken"


class Engine(engines.Engine):
    log = logging.getLogger("test")

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        has = {name: mapping.metadata.get(f"key.{name}") for name in wanted}
        if has != wanted:
            raise gpuwm.Mismatch(f"has {has}, wanted {wanted}")


class Load(names.Load):
    kind = "test"
    engine = Engine
    rank_fields = ()

    def __init__(self) -> None:
        self.content = "first"

    model = "/folder/model"
    device_kind = "cpu"
    model_config = types.SimpleNamespace(dtype=torch.float16)

    def ranks(self) -> Ranks:
        return Ranks()

    def share(self) -> Share:
        return WHOLE

    def ref(self, settings: Settings) -> str | None:
        return settings.ref

    def layout(self) -> dict[str, str]:
        return {"dtype": "float32"}

    def details(self) -> dict[str, str]:
        return {}

    def identity(self, inner: str) -> dict[str, str]:
        return {"identity.weights": self.content}

    def compared(self, found: Collection[str]) -> Collection[str]:
        return found


class Doubles(Replay):
    def _steps(self) -> Iterator[Step]:
        yield self._model, lambda: self._model.weight.data.mul_(2)


class Steps(load_flow.Steps):
    """An engine whose only module is a linear layer. error: of what fails in it."""

    log = Engine.log
    made_by = "test.maker"
    written_by_loading = frozenset({"training"})

    def __init__(self, daemon: Daemon, **given: Any) -> None:
        super().__init__(Load(), Settings(socket=str(daemon.socket), wait=0.0, **given))
        self.error: dict[str, Exception] = {}
        self.done: list[str] = []
        self.kept: Any = None

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what in self.error:
            raise self.error[what]

    def check(self) -> None:
        self._do("check")

    def read(self) -> Any:
        self._do("read")
        model = torch.nn.Linear(4, 4, bias=False).eval()
        model.weight.data.fill_(2)
        return model

    def read_raw(self, weights: Iterable[tuple[str, Any]], checkpoint: str) -> Any:
        self._do("read raw")
        model = torch.nn.Linear(4, 4, bias=False).eval()
        model.weight.data.copy_(dict(weights)["weight"])
        return model

    def initialize(self) -> Any:
        self._do("initialize")
        with gpuwm.empty_init():
            return torch.nn.Linear(4, 4, bias=False)

    def replay(self, model: Any) -> Replay:
        return Doubles(model)

    def finish(self, model: Any) -> None:
        self._do("finish")

    def backends(self, model: Any) -> dict[str, str]:
        return {"backends.linear": type(model).__name__}

    def publish(self, engine: engines.Engine, model: Any) -> Attached:
        self._do("publish")
        made_by = {self.made_by: publication.made_by("torch", "torch", self.load.model)}
        return publication.publish(engine, model, self.backends(model), made_by)

    def keep(self, model: Any, engine: engines.Engine, mapping: Attached) -> None:
        self.kept = mapping


def load(steps: Steps) -> Any:
    return load_flow.or_alone(steps, lambda: load_flow.carry_out(steps, load_flow.decide(steps)))


@pytest.fixture
def name(daemon: Daemon) -> str:
    if daemon.device != "host":
        pytest.skip("the engine's model is on the host")
    return f"flow@v{next(_count)}"


def is_claimable(daemon: Daemon, name: str) -> bool:
    """Whether another engine would build the version now."""
    steps = Steps(daemon, ref=name)
    engine, mapping = load_flow.decide(steps)
    election.give_up(engine)
    return mapping is None


def test_the_first_builds_and_the_next_attaches(
    daemon: Daemon, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Steps(daemon, ref=name), Steps(daemon, ref=name)
    with caplog.at_level(logging.INFO, "test"):
        built, attached = load(first), load(second)
    assert first.done == ["check", "read", "publish"]
    assert second.done == ["check", "initialize", "finish"]
    assert str(first.kept.version) == str(second.kept.version) == name
    assert attached.weight.equal(built.weight)
    assert not attached.training
    assert f"gpuwm: built {name} ({first.kept.version.id}), since it was not there: " in caplog.text
    assert "in 1 tensors; loader auto " in caplog.text
    assert (
        f"gpuwm: attached {name} ({first.kept.version.id}), 0.00 GB, made by torch " in caplog.text
    )
    assert "from /folder/model, in " in caplog.text
    for step in ("key", "attach", "build", "install and post-process", "of it post-processing"):
        assert f"{step} 0." in caplog.text


def test_kernels_that_differ_are_named(daemon: Daemon, name: str) -> None:
    load(Steps(daemon, ref=name))
    other = Steps(daemon, ref=name)
    other.backends = lambda model: {"backends.linear": "Marlin"}  # type: ignore[method-assign]
    with pytest.raises(gpuwm.Mismatch, match="Marlin"):
        load(other)
    assert other.kept is None


def test_a_loader_that_fails_gives_the_claim_up(daemon: Daemon, name: str) -> None:
    steps = Steps(daemon, ref=name, fallback="auto")
    steps.error["read"] = OSError(DISK)
    with pytest.raises(OSError, match=DISK):
        load(steps)
    assert is_claimable(daemon, name)


def test_a_checkpoint_that_changes_meanwhile_is_not_published(daemon: Daemon, name: str) -> None:
    steps = Steps(daemon, ref=name)
    decision = load_flow.decide(steps)
    steps.load.content = "second"  # type: ignore[attr-defined]
    with pytest.raises(
        gpuwm.Mismatch,
        match=f"the checkpoint /folder/model changed while it was read: identity.weights was first "
        f"when {name} was named, and is second now",
    ):
        load_flow.carry_out(steps, decision)
    assert steps.done == ["check", "read"]
    assert is_claimable(daemon, name)


@pytest.mark.parametrize("what", ["check", "initialize", "publish"])
def test_an_engine_that_may_fall_back_loads_alone(
    daemon: Daemon, name: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "initialize":
        load(Steps(daemon, ref=name))
    steps = Steps(daemon, ref=name, fallback="auto")
    steps.error[what] = gpuwm.NoRoom("the GPU is full")
    assert load(steps).weight.equal(torch.full((4, 4), 2.0))
    assert steps.kept is None
    assert steps.done.count("read") == 1
    assert torch.get_default_dtype() is torch.float32
    assert "/folder/model is loaded into memory of this engine alone" in caplog.text
    assert "since gpuwm can't be used: the GPU is full" in caplog.text


@pytest.mark.parametrize(
    ("fallback", "error"),
    [(None, gpuwm.NoRoom("full")), ("auto", RankEnded("rank 1 ended"))],
)
@pytest.mark.parametrize("what", ["check", "publish"])
def test_other_engines_do_not_load_alone(
    daemon: Daemon, name: str, what: str, fallback: str | None, error: gpuwm.Error
) -> None:
    steps = Steps(daemon, ref=name, fallback=fallback)
    steps.error[what] = error
    with pytest.raises(type(error)):
        load(steps)
    assert steps.done[-1] == what


def test_raw_reads_the_checkpoint_that_gpuwm_holds(
    daemon: Daemon, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    gpuwm.publish({"weight": torch.full((4, 4), 3.0)}, name, bind=False, device=daemon.device)
    steps = Steps(daemon, ref=name, mode="raw")
    with caplog.at_level(logging.INFO, "test"):
        assert load(steps).weight.equal(torch.full((4, 4), 3.0))
    assert steps.done == ["check", "read raw", "publish"]
    assert f"from {name} on {daemon.device} " in caplog.text
    assert str(steps.kept.version).startswith("model@test-")


def test_what_connecting_took_is_taken_from_the_wait() -> None:
    began = time.monotonic() - 20
    assert 9 < (Settings(wait=30).after(began).wait or 0) <= 10
    assert 0 < (Settings(wait=10).after(began).wait or 0) < 1, "0 would be a call without a wait"
    assert Settings().after(began).wait is None
    assert Settings(wait=0).after(began).wait == 0
    assert Settings(wait=math.inf).after(began).wait == math.inf
