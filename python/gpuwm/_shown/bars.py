"""Bars of tqdm, where it is installed and somebody looks."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .progress import Progress

DELAY_S = 0.5  # what is over before a person wonders needs no bar


def hook() -> Callable[[Progress], object] | None:
    """What draws bars, or None if there is no tqdm, or nobody would see them."""
    return _bars if _somebody_looks() and _has_tqdm() else None


def _somebody_looks() -> bool:
    """Whether standard error is a terminal or a cell of a notebook."""
    stream = sys.stderr
    if stream is None or stream.closed:
        return False
    return stream.isatty() or type(stream).__module__.partition(".")[0] == "ipykernel"


@functools.cache
def _has_tqdm() -> bool:
    return importlib.util.find_spec("tqdm") is not None


class _Bars:
    """A bar for each operation, by its number."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._bars: dict[int, Any] = {}

    def __call__(self, told: Progress) -> None:
        now = time.monotonic()
        began = self._since.setdefault(told.number, now)
        if told.has_ended:
            self._end(told.number)
        elif now - began >= DELAY_S:
            self._draw(told)

    def _draw(self, told: Progress) -> None:
        bar = self._bars.get(told.number)
        if bar is None:
            from tqdm.auto import tqdm

            bar = tqdm(unit="B", unit_scale=True, file=sys.stderr, leave=False)
            self._bars[told.number] = bar
        bar.set_description_str(f"{told.what} {told.name}: {told.phase}", refresh=False)
        bar.total, bar.n = told.total or None, told.done
        bar.refresh()

    def _end(self, number: int) -> None:
        del self._since[number]
        bar = self._bars.pop(number, None)
        if bar is not None:
            with contextlib.suppress(ValueError):  # its stream was closed meanwhile
                bar.close()


_bars = _Bars()
