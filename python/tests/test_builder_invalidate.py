"""Results of builders that are to be built anew."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
from typing import Any

import pytest
import torch
from built import Counted
from conftest import by_torch, eventually

import gpuwm
import gpuwm.builders

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

_models = itertools.count(1)


@pytest.fixture
def model() -> str:
    return f"anew-{next(_models)}"


def test_invalidate(model: str) -> None:
    counted: Counted = Counted(lambda _: torch.full((2,), float(counted.calls)))
    build = counted.builder(model=model, key="size:{hidden}")
    old = build(4)
    assert build.invalidate(4)
    assert not build.invalidate(4)
    assert build(4).tolist() == [2, 2]
    assert old.tolist() == [1, 1], "whoever has it keeps it"
    build(5)
    build(15)
    assert build.invalidate_all("size:1") == 1
    assert build.invalidate_all() == 2
    eventually(lambda: [entry.state for entry in build.info()] == ["retiring"])
    del old
    eventually(lambda: build.info() == [])


def test_invalidate_waits_for_what_is_being_built(model: str) -> None:
    begun, go = threading.Event(), threading.Event()

    def make(_: int) -> Any:
        begun.set()
        go.wait(30)
        return torch.full((2,), float(counted.calls))

    counted = Counted(make)
    build = counted.builder(model=model)
    first = build.submit(1)
    begun.wait(30)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        one, both = pool.submit(build.invalidate, 1), pool.submit(build.invalidate_all)
        with pytest.raises(TimeoutError):
            one.result(0.1)
        go.set()
        assert sorted((one.result(30), both.result(30))) == [False, True]
    assert first.result(30).tolist() == [1, 1]
    assert build(1).tolist() == [2, 2]


def test_invalidate_of_what_becomes_ready_meanwhile(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Counted(lambda _: torch.ones(1)).builder(model=model)

    def look(_: str) -> bool:
        build()
        return False

    monkeypatch.setattr(build, "_is_being_built", look)
    assert build.invalidate()


def test_invalidate_waits_no_longer_than_told(model: str) -> None:
    begun, go = threading.Event(), threading.Event()

    def make(_: int) -> Any:
        begun.set()
        go.wait(30)
        return torch.ones(1)

    build = Counted(make).builder(model=model, wait=0.1)
    first = build.submit(1)
    begun.wait(30)
    with pytest.raises(gpuwm.TimedOut):
        build.invalidate(1)
    go.set()
    first.result(30)
    assert build.invalidate(1)


def test_a_builder_may_invalidate_itself(model: str) -> None:
    def make(_: int) -> Any:
        assert not build.invalidate(1)
        return torch.ones(1)

    build = Counted(make).builder(model=model)
    assert build(1).tolist() == [1]


def test_invalidate_of_a_build_that_failed(model: str) -> None:
    begun, go = threading.Event(), threading.Event()

    def make(_: int) -> Any:
        begun.set()
        go.wait(30)
        raise ValueError("no disk")

    build = Counted(make).builder(model=model)
    first = build.submit(1)
    begun.wait(30)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = pool.submit(build.invalidate, 1)
        go.set()
        assert not found.result(30)
    with pytest.raises(ValueError, match="no disk"):
        first.result(30)
    assert gpuwm.connect().list(model)["claims"] == []
