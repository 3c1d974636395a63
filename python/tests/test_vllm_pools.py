"""Loads of vLLM's sleep mode run outside of its memory pool, which is a matter of the thread."""

from __future__ import annotations

import contextvars
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwm.vllm import pools

pytest.importorskip("torch")
VALUE: contextvars.ContextVar[int] = contextvars.ContextVar("VALUE", default=0)


def config(sleep: bool, **more: bool) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=sleep, **more))


def test_without_sleep_mode_the_load_stays_in_its_thread() -> None:
    assert pools.outside(config(False), threading.current_thread) is threading.current_thread()


def test_with_sleep_mode_the_load_has_a_thread_of_its_own_and_the_callers_context() -> None:
    VALUE.set(7)

    def load() -> tuple[threading.Thread, int]:
        return threading.current_thread(), VALUE.get()

    thread, value = pools.outside(config(True), load)
    assert thread is not threading.current_thread()
    assert not thread.is_alive()
    assert value == 7


def test_the_allocators_own_flag_counts_without_sleep_mode() -> None:
    here = threading.current_thread()
    allocator = config(False, enable_cumem_allocator=True)
    assert pools.outside(allocator, threading.current_thread) is not here
    neither = config(False, enable_cumem_allocator=False)
    assert pools.outside(neither, threading.current_thread) is here


def test_the_caller_goes_on_when_the_device_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    calls: list[tuple[str, bool]] = []

    def note(what: str) -> None:
        calls.append((what, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: note(f"set {device}"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: note(f"wait for {device}"))
    pools.outside(config(True), lambda: note("load"))
    assert calls == [("set 3", False), ("load", False), ("wait for 3", False)]


def test_what_the_load_raises_comes_to_the_caller() -> None:
    def load() -> None:
        raise OSError("no file")

    for sleep in (False, True):
        with pytest.raises(OSError, match="no file"):
            pools.outside(config(sleep), load)
