"""Which process makes what several processes need, and whether they share it: $GPUWM_MODE."""

from __future__ import annotations

import enum
import math
import os
from typing import Literal

from . import errors
from ._c import lib

Mode = Literal["save", "load", "auto", "local"]
_MODES: tuple[Mode, ...] = ("save", "load", "auto", "local")


def mode_of(mode: Mode | None, otherwise: Mode) -> Mode:
    """The mode that was asked for, else $GPUWM_MODE, else `otherwise`. Raises Invalid and
    TypeError."""
    if mode is not None:
        lib.choice(mode, "mode", _MODES)
    chosen = mode or os.environ.get("GPUWM_MODE") or otherwise
    for known in _MODES:
        if chosen == known:
            return known
    raise errors.Invalid(f"GPUWM_MODE={chosen!r}", 'give "save", "load", "auto" or "local"')


class ByMode(enum.Enum):
    """The default of `wait` in calls that have a mode, where None is a wait of its own: none."""

    WAIT = enum.auto()


Wait = float | None | Literal[ByMode.WAIT]


def wait_of(wait: Wait, mode: Mode) -> float | None:
    """How many seconds a call waits in this mode. If the caller did not say it: not at all for a
    version that only others make, and for ever for another process that builds."""
    if wait is not ByMode.WAIT:
        return wait
    return None if mode == "load" else math.inf


def is_local(mode: Mode | None = None) -> bool:
    """Whether this process keeps everything to itself, and asks no gpuwmd."""
    return mode_of(mode, "auto") == "local"
