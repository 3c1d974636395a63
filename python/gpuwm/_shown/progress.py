"""How far something is that takes time. One kind of record goes to one hook."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

from .._c import lib
from . import bars


class Progress(NamedTuple):
    """How far an operation is, as its hook is told.

    - what: "publish"; "wait" (for a version that is not there yet, or not ready); "fill" (the
      function that gives a model its values); "build" (a call of a builder); or what a job of
      gpuwmd does: "load", "verify", "demote", "promote", "describe", "job" if only its number is
      known.
    - name: of the version, as the caller named it. "": it has none.
    - phase: what is done now, in a few words. "done" and "failed" end the operation.
    - done, total: bytes of this phase. total 0: nobody knows them.
    - number: all that is told of one operation has the same number. 0: it was asked for, as
      Job.progress.
    """

    what: str
    name: str
    phase: str
    done: int = 0
    total: int = 0
    number: int = 0

    @property
    def has_ended(self) -> bool:
        return self.phase in ("done", "failed")


Hook = Callable[[Progress], object]
Default = Hook | Literal["auto"] | None

_numbers = itertools.count(1)
_default: Default = "auto"


def set_progress(hook: Default) -> Default:
    """Says who is told of progress by calls that have no `progress=`. Returns who was told before.

    - hook: a function that gets each Progress, in the thread of the call. "auto", as at the start:
      a bar of tqdm for what takes longer than half a second, if tqdm is installed and standard
      error is a terminal or a notebook; otherwise nobody. None: nobody.
    """
    global _default
    checked(hook if hook != "auto" else None)
    before, _default = _default, hook
    return before


def checked(hook: Hook | None) -> Hook | None:
    """Raises TypeError if it can't be called."""
    if hook is not None:
        lib.function(hook, "progress", "a function that gets each gpuwm.Progress")
    return hook


class Operation:
    """Something that takes time. The end of its `with` block is its end.

    An error that the hook raises ends the call, unless the call has failed already.
    """

    def __init__(self, what: str, name: str | None, hook: Hook | None = None) -> None:
        """hook: None: the process's."""
        self.what, self.name = what, name or ""
        self._number = next(_numbers)
        self._hook = checked(hook) or (bars.hook() if _default == "auto" else _default)

    @property
    def is_heard(self) -> bool:
        return self._hook is not None

    def tell(self, phase: str, done: int = 0, total: int = 0) -> None:
        if self._hook is not None:
            self._hook(Progress(self.what, self.name, phase, done, total, self._number))

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.tell("done")
        else:
            with contextlib.suppress(Exception):
                self.tell("failed")
