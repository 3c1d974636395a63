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


def config(sleep: bool) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(enable_sleep_mode=sleep))


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


def test_what_the_load_raises_comes_to_the_caller() -> None:
    def load() -> None:
        raise OSError("no file")

    for sleep in (False, True):
        with pytest.raises(OSError, match="no file"):
            pools.outside(config(sleep), load)
