"""Without gpuwmd: $GPUWM_MODE=local."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import threading
import time
from typing import Any

import pytest
import torch
from conftest import by_torch, eventually, run_python
from torch import nn

import gpuwm

pytestmark = by_torch

_models = itertools.count(1)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWM_MODE", "local")
    monkeypatch.setenv("GPUWM_SOCKET", "/nowhere")


@pytest.fixture
def model() -> str:
    return f"local-{next(_models)}"


class Counted:
    def __init__(self, value: Any = lambda: torch.ones(1)) -> None:
        self.value, self.calls = value, 0

    def builder(self, **options: Any) -> Any:
        def build(size: int = 1) -> Any:
            self.calls += 1
            return self.value()

        return gpuwm.builder(**options)(build)


def test_it_is_built_once_and_kept(model: str) -> None:
    counted = Counted(lambda: nn.Linear(2, 2))
    build = counted.builder(model=model)
    first = build()
    assert build() is first
    assert build(2) is not first
    assert build.submit().result(60) is first
    assert counted.calls == 2
    assert not hasattr(first.weight, "gpuwm_plain"), "it is the process's own, and may be written"


def test_invalidate_and_info(model: str) -> None:
    counted = Counted()
    build = counted.builder(model=model, key="size:{size}")
    assert build.info() == []
    build(1)
    build(2)
    (first, _) = build.info()
    assert (first.state, first.version, first.expires) == ("local", None, None)
    assert first.tag.startswith("size-1-")
    assert abs(first.made - time.time()) < 60
    assert build.invalidate(1)
    assert not build.invalidate(1)
    assert build.invalidate_all("size:") == 1
    build(1)
    assert counted.calls == 3


@pytest.mark.parametrize("every", [False, True])
def test_what_was_invalidated_while_it_was_made_is_not_kept(model: str, every: bool) -> None:
    begun, go = threading.Event(), threading.Event()

    def make() -> Any:
        begun.set()
        go.wait(30)
        return torch.full((1,), float(counted.calls))

    counted = Counted(make)
    build = counted.builder(model=model)
    first = build.submit()
    begun.wait(30)
    waiting = build.submit()
    eventually(lambda: waiting.progress.phase != "queued" or waiting.running())
    assert not (build.invalidate_all() if every else build.invalidate())
    go.set()
    assert first.result(30).tolist() == [1]
    assert waiting.result(30).tolist() == build().tolist() == [2]
    assert build() is build()


def test_times_and_the_last_ones(model: str) -> None:
    counted = Counted()
    build = counted.builder(model=model, ttl=0.05, keep_last=2)
    for size in (1, 2, 3):
        build(size)
    assert len(build.info()) <= 2
    eventually(lambda: build.info() == [])
    build(3)
    assert counted.calls == 4


def test_one_that_raises_is_followed_by_the_next(model: str) -> None:
    values = iter([ValueError("no disk"), torch.ones(1)])

    def value() -> Any:
        found = next(values)
        if isinstance(found, Exception):
            raise found
        return found

    build = Counted(value).builder(model=model)
    with pytest.raises(ValueError, match="no disk"):
        build()
    assert build() is build()


@pytest.mark.parametrize("value", [7, None, {1}], ids=str)
def test_what_gpuwmd_would_refuse_is_refused(model: str, value: Any) -> None:
    with pytest.raises(gpuwm.Invalid, match="the builder returned an object of"):
        Counted(lambda: value).builder(model=model)()


def test_recursion(model: str) -> None:
    def fall() -> Any:
        return build()

    build = gpuwm.builder(model=model)(fall)
    with pytest.raises(gpuwm.Invalid, match="needs its own result"):
        build()


def test_threads_race(model: str) -> None:
    counted = Counted()
    build = counted.builder(model=model)
    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        found = list(executor.map(lambda _: build(), range(64)))
    assert counted.calls == 1
    assert all(each is found[0] for each in found)


def test_a_child_has_what_its_parent_has(model: str) -> None:
    counted = Counted()
    build = counted.builder(model=model)
    build()
    pid = os.fork()
    if pid == 0:
        build()
        os._exit(counted.calls)
    assert os.waitpid(pid, 0)[1] == 256


def test_build_and_share() -> None:
    def fill(made: Any) -> Any:
        return made.requires_grad_(False)

    model: Any = gpuwm.build("m@v1", lambda: nn.Linear(2, 2), fill=fill)
    assert not model.weight.requires_grad
    model.weight.zero_()
    tensor = torch.ones(3)
    assert gpuwm.share(tensor) is tensor


def test_what_needs_versions_says_so() -> None:
    with pytest.raises(gpuwm.Unsupported, match="mode local makes no versions"):
        gpuwm.obtain("m@v1", dict)


def test_the_same_program_runs_with_and_without_gpuwmd(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import torch, gpuwm
@gpuwm.builder(key="h{hidden}", model="same-program")
def build(hidden):
    return {"net": torch.nn.Linear(hidden, hidden), "table": torch.full((hidden,), 2.0)}
print(build(4)["table"].sum().item(), build(4)["net"](torch.zeros(4)).shape[0], build.invalidate(4))
"""
    alone = run_python(program)
    monkeypatch.delenv("GPUWM_MODE")
    monkeypatch.setenv("GPUWM_SOCKET", str(daemon.socket))
    assert run_python(program) == alone == "8.0 4 True\n"
