"""Loads of vLLM's sleep mode run outside of its memory pool, which is left for that time."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpuwm.vllm import pools

torch = pytest.importorskip("torch")
DEVICE, POOL = 3, (0, 17)


def config(sleep: bool, **more: bool) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=sleep, **more))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What torch was asked for. vLLM's worker is in the pool of its weights."""
    found: list[Any] = []

    def note(what: str) -> Any:
        return lambda device, pool: found.append((what, device, pool))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: DEVICE)
    for name, what in (
        ("_cuda_endAllocateToPool", "end"),
        ("_cuda_releasePool", "release"),
        ("_cuda_beginAllocateCurrentThreadToPool", "begin"),
    ):
        monkeypatch.setattr(torch.cuda.memory, name, note(what))
    entered(monkeypatch, "weights")
    return found


OF_ONE = (SimpleNamespace(id=POOL), object())
OF_SEVERAL = [(SimpleNamespace(id=(0, 7)), object()), OF_ONE]  # newer releases: the last is entered


def entered(monkeypatch: pytest.MonkeyPatch, tag: str | None, pools: Any = OF_ONE) -> None:
    """tag: of the pool; "default": there were pools, and none is entered; None: there was none."""
    allocator = SimpleNamespace(current_tag=tag, allocator_and_pools={"weights": pools})
    module: Any = ModuleType("vllm.device_allocator.cumem")
    module.CuMemAllocator = SimpleNamespace(
        instance=None if tag is None else allocator, default_tag="default"
    )
    for name in ("vllm", "vllm.device_allocator"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


LEFT = [("end", DEVICE, POOL), ("release", DEVICE, POOL), "load", ("begin", DEVICE, POOL)]


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (config(False), ["load"]),
        (config(False, enable_cumem_allocator=False), ["load"]),
        (config(True), LEFT),
        (config(False, enable_cumem_allocator=True), LEFT),
    ],
)
def test_the_pool_is_left_while_the_model_is_loaded(
    calls: list[Any], configured: Any, expected: list[Any]
) -> None:
    pools.outside(configured, lambda: calls.append("load"))
    assert calls == expected


def test_of_several_pools_of_a_tag_the_last_is_left(
    monkeypatch: pytest.MonkeyPatch, calls: list[Any]
) -> None:
    entered(monkeypatch, "weights", OF_SEVERAL)
    pools.outside(config(True), lambda: calls.append("load"))
    assert calls == LEFT


@pytest.mark.parametrize("tag", ["default", None])
def test_a_pool_that_is_not_entered_is_not_left(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch, tag: str | None
) -> None:
    entered(monkeypatch, tag)
    pools.outside(config(True), lambda: calls.append("load"))
    assert calls == ["load"]


def test_a_load_that_fails_enters_the_pool_again(calls: list[Any]) -> None:
    def load() -> None:
        raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        pools.outside(config(True), load)
    assert calls[-1] == ("begin", DEVICE, POOL)


def test_what_the_load_returns_comes_back(calls: list[Any]) -> None:
    assert pools.outside(config(True), lambda: 7) == 7
