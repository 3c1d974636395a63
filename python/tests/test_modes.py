"""Who builds a version, and who attaches to it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, by_torch, interrupted

import gpuwm
from gpuwm import _election

_count = itertools.count()

# Waits for a line when it builds (if it is told to), and for its end when it has it. Without torch.
WORKER = """
import sys, gpuwm, numpy
def make():
    print("builds", flush=True)
    if sys.argv[2:] and not sys.stdin.readline():
        raise SystemExit
    return {"w": numpy.arange(1 << 16)}
mapping = gpuwm.obtain(sys.argv[1], make)
assert mapping["w"].tobytes() == numpy.arange(1 << 16).tobytes()
assert "torch" not in sys.modules
print("has", mapping.version.id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def name() -> str:
    return f"obtained@v{next(_count)}"


class Worker:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.end()


def arrays() -> dict[str, Any]:
    return {"w": np.arange(8)}


def never() -> dict[str, Any]:
    raise AssertionError("it was called")


def has(worker: Worker, built: list[Worker]) -> str:
    """The version that a worker has."""
    line = worker.line()
    if line == "builds\n":
        built.append(worker)
        line = worker.line()
    assert line.startswith("has "), line
    return line


@by_torch
def test_sixteen_at_once_build_one(daemon: Daemon, name: str, workers: list[Worker]) -> None:
    workers += [Worker(name) for _ in range(16)]
    built: list[Worker] = []
    assert len({has(worker, built) for worker in workers}) == 1
    assert len(built) == 1
    assert daemon.leases(name) == 16


def test_a_builder_that_dies_has_one_successor(
    daemon: Daemon, name: str, workers: list[Worker]
) -> None:
    first = Worker(name, "waits")
    workers.append(first)
    assert first.line() == "builds\n"
    workers += [Worker(name, "waits") for _ in range(3)]
    first.end()
    others = workers[1:]
    # Whoever it is asks before it goes on; the others say nothing before they have it.
    for worker in others:
        worker.go_on()
    built: list[Worker] = []
    assert len({has(worker, built) for worker in others}) == 1
    assert len(built) == 1
    assert daemon.leases(name) == 3


def test_a_builder_that_fails_lets_the_next(daemon: Daemon, name: str) -> None:
    with pytest.raises(AssertionError, match="it was called"):
        gpuwm.obtain(name, never, mode="auto")
    with pytest.raises(gpuwm.Invalid, match="no tensors"):
        gpuwm.obtain(name, dict, mode="auto")
    assert list(gpuwm.obtain(name, arrays, mode="auto", wait=0)) == ["w"]


def test_a_client_of_ones_own_may_fail_and_go_on(daemon: Daemon, name: str) -> None:
    client = gpuwm.connect()
    with pytest.raises(AssertionError):
        gpuwm.obtain(name, never, client=client)
    assert list(gpuwm.obtain(name, arrays, client=client)) == ["w"]


def test_none_never_waits_in_any_mode(daemon: Daemon, name: str) -> None:
    building = gpuwm.connect()
    assert _election.claim(building, name, None, 0, None) is None
    with pytest.raises(gpuwm.TimedOut, match="claimed by session"):
        gpuwm.obtain(name, never, wait=None)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.obtain(name, never, mode="load", wait=None)
    made = gpuwm.builder(key="none", model=name.partition("@")[0], wait=None)(never)
    claimed = gpuwm.connect()
    assert _election.claim(claimed, made.key(), None, 0, None) is None
    with pytest.raises(gpuwm.TimedOut, match="claimed by session"):
        made()


def test_a_wait_that_was_interrupted_builds_nothing(daemon: Daemon, name: str) -> None:
    first, second = gpuwm.connect(), gpuwm.connect()
    assert _election.claim(first, name, None, 0, None) is None
    interrupted(lambda: gpuwm.obtain(name, never, client=second), first.close)
    first.close()
    assert gpuwm.obtain(name, arrays, wait=20).version.tag == name.partition("@")[2]
    second.ping()


def test_load_attaches_only(daemon: Daemon, name: str) -> None:
    with pytest.raises(gpuwm.NotFound, match=name.split("@")[1]):
        gpuwm.obtain(name, never, mode="load")
    with pytest.raises(gpuwm.TimedOut):
        gpuwm.obtain(name, never, mode="load", wait=0.05)
    gpuwm.publish(arrays(), name, bind=False)
    for mode in ("load", "auto"):
        assert list(gpuwm.obtain(name, never, mode=mode)) == ["w"]


def test_save_makes_it(daemon: Daemon, name: str) -> None:
    mapping = gpuwm.obtain(name, arrays, mode="save", alias="saved", metadata={"by": "me"})
    assert mapping.metadata["by"] == "me"
    assert gpuwm.attach("obtained@saved").version.id == mapping.version.id
    with pytest.raises(gpuwm.Exists, match=name):
        gpuwm.obtain(name, arrays, mode="save")


def test_the_environment_has_the_default(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWM_MODE", "load")
    with pytest.raises(gpuwm.NotFound):
        gpuwm.obtain(name, never)
    assert list(gpuwm.obtain(name, arrays, mode="auto")) == ["w"]
    monkeypatch.setenv("GPUWM_MODE", "Auto")
    with pytest.raises(gpuwm.Invalid, match="GPUWM_MODE='Auto'"):
        gpuwm.obtain(name, never)
    with pytest.raises(gpuwm.Invalid, match="mode='both'"):
        gpuwm.obtain(name, never, mode="both")  # type: ignore[arg-type]


def test_another_key_is_named(daemon: Daemon, name: str) -> None:
    key = {"model": "m", "dtype": "bf16", "world": 2}
    gpuwm.obtain(name, arrays, key=key)
    assert list(gpuwm.obtain(name, never, key=key)) == ["w"]
    for field, value in (("dtype", "fp8"), ("world", 4), ("engine", "x 1.2")):
        for mode in ("auto", "load"):
            with pytest.raises(gpuwm.Mismatch, match=f"{field}.*{value}"):
                gpuwm.obtain(name, never, mode=mode, key={**key, field: value})


def test_an_alias_can_not_be_built(daemon: Daemon, name: str) -> None:
    gpuwm.publish(arrays(), name, alias="latest", bind=False)
    with pytest.raises(gpuwm.Exists, match="latest"):
        gpuwm.obtain("obtained@latest", never)


@by_torch
def test_a_model_is_built_once(daemon: Daemon, name: str) -> None:
    import torch
    from binding_models import Net, trained, within

    def fill(model: torch.nn.Module) -> None:
        filled.append(model)
        model.load_state_dict(trained().state_dict())

    filled: list[torch.nn.Module] = []
    ids = torch.arange(8)
    first, second = (gpuwm.build(name, Net, fill=fill).eval() for _ in range(2))
    assert filled == [first]
    assert torch.equal(first(ids), trained()(ids))
    assert torch.equal(first(ids), second(ids))
    mapping = gpuwm.attach(name)
    assert within(mapping, first) == within(mapping, second) != []
    saved = gpuwm.build(name + "s", trained, mode="save", private="hidden.*", share_buffers=True)
    saved.hidden.weight.zero_()
    assert "scale" in within(gpuwm.attach(name + "s"), saved)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.build(name + "-not", Net)
