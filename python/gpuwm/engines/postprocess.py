"""Runs an engine's post-processing of weights again, without touching a weight."""

from __future__ import annotations

import abc
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

Step = tuple[Any, Callable[[], object]]


class Replay(abc.ABC):
    """An engine's post-processing of a fresh model, module by module, for `gpuwm.image.install`.

    Each step runs once, on memory of its own. It leaves the names, kernels and plain values that
    post-processing leaves, and its tensors are exchanged for those of the version. seconds: how
    long the steps took so far.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.seconds: float = 0.0

    def steps(self) -> Iterator[tuple[Any, Callable[[Any], object]]]:
        for module, run in self._steps():
            yield module, functools.partial(self._timed, run)

    @abc.abstractmethod
    def _steps(self) -> Iterator[Step]:
        """The modules, in the order of the engine's own post-processing, and what it calls for
        each."""

    def _timed(self, run: Callable[[], object], module: Any) -> None:
        begin = time.perf_counter()
        run()
        self.seconds += time.perf_counter() - begin
