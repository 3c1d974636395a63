"""Captures of CUDA graphs are told to the library, each once, however they end."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwm._c import lib
from gpuwm._torch import graphs


class Library:
    def __init__(self) -> None:
        self.told: list[str] = []

    def gpuwm_capture_begin(self) -> None:
        self.told.append("begin")

    def gpuwm_capture_end(self) -> None:
        self.told.append("end")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(lib, "load", lambda: library)
    return library


def graph_of(library: Library, fails: str = "") -> Any:
    """As torch.cuda.CUDAGraph, which this torch may not have."""

    class Graph:
        def capture_begin(self, pool: Any = None) -> None:
            library.told.append("torch begins")
            if fails == "begin":
                raise RuntimeError

        def capture_end(self) -> None:
            library.told.append("torch ends")
            if fails == "end":
                raise RuntimeError

    graphs.wrap(Graph)
    return Graph()


def test_a_capture_is_told_before_and_after(library: Library) -> None:
    graph = graph_of(library)
    for _ in range(2):
        graph.capture_begin(pool=1)
        graph.capture_end()
    assert library.told == ["begin", "torch begins", "torch ends", "end"] * 2


def test_captures_may_overlap(library: Library) -> None:
    one, other = graph_of(library), graph_of(library)
    one.capture_begin()
    other.capture_begin()
    one.capture_end()
    other.capture_end()
    assert [told for told in library.told if "torch" not in told] == ["begin"] * 2 + ["end"] * 2


@pytest.mark.parametrize("fails", ["begin", "end"])
def test_a_capture_that_fails_has_ended(library: Library, fails: str) -> None:
    graph = graph_of(library, fails)
    if fails == "begin":
        with pytest.raises(RuntimeError):
            graph.capture_begin()
    else:
        graph.capture_begin()
        with pytest.raises(RuntimeError):
            graph.capture_end()
    assert [told for told in library.told if "torch" not in told] == ["begin", "end"]


def test_an_end_without_a_beginning_is_not_told(library: Library) -> None:
    graph_of(library).capture_end()
    assert library.told == ["torch ends"]


def test_the_library_has_both() -> None:
    lib.load().gpuwm_capture_begin()
    lib.load().gpuwm_capture_end()
