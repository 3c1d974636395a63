"""How long tests wait for engines: as long as these work, however slow the machine is."""

from __future__ import annotations

from typing import Any

import pytest

from tests_engines import engines


class Quiet:
    """An engine's pipe, which says something after so many waits."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def poll(self, seconds: float) -> bool:
        self.waits -= 1
        return self.waits < 0

    def recv(self) -> str:
        return "there"


def heard(monkeypatch: pytest.MonkeyPatch, *used: dict[int, float]) -> Any:
    """used: by each process, before the first wait and after each; then the engine speaks."""
    told = iter(used)
    monkeypatch.setattr(engines, "_cpu_seconds", lambda: next(told))
    pipe: Any = Quiet(len(used) - 1)
    return engines.heard(pipe, lambda: "its log")


def test_an_engine_that_works_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heard(monkeypatch, *({1: float(second)} for second in range(100))) == "there"


def test_one_that_waits_for_another_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heard(monkeypatch, {1: 5, 2: 0}, {1: 5, 2: 9}, {1: 5, 2: 20}) == "there"


def test_one_that_ends_takes_no_work_along(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heard(monkeypatch, {1: 50, 2: 0}, {2: 5}, {2: 9, 3: 1}) == "there"


def test_nobody_waits_for_engines_that_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="no engine works:\nits log"):
        heard(monkeypatch, {1: 5, 2: 5}, {1: 9, 2: 5}, {1: 9, 2: 5.1}, {1: 50, 2: 50})


def test_nobody_waits_for_one_that_goes_round_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"still silent after 6\d\d s of a processor:"):
        heard(monkeypatch, *({1: 50.0 * second} for second in range(100)))
