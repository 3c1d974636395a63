"""Tells the library when torch captures a CUDA graph.

If any thread waits for a context, every capture in that context becomes invalid, and the library
waits for it before it unmaps memory. torch.cuda.graph, make_graphed_callables and compiled graphs
all use the two methods that are wrapped here.
"""

from __future__ import annotations

import functools
from typing import Any

from .._c import lib

_CAPTURING = "_gpuwm_capturing"


@functools.cache
def watch() -> None:
    """Begins to watch. Call it before the first tensor on a GPU goes to torch."""
    import torch

    wrap(torch.cuda.CUDAGraph)


def wrap(graph: Any) -> None:
    """Wraps a class of graphs, so that it tells the library of its captures."""
    library = lib.load()
    begin, end = graph.capture_begin, graph.capture_end

    def finished(self: Any) -> None:
        if self.__dict__.pop(_CAPTURING, False):
            library.gpuwm_capture_end()

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.__dict__.get(_CAPTURING):
            library.gpuwm_capture_begin()
            setattr(self, _CAPTURING, True)
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            finished(self)
            raise

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        finally:
            finished(self)

    graph.capture_begin, graph.capture_end = capture_begin, capture_end
