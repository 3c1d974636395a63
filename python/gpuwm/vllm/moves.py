"""A move of one rank's model to another version, from its preparation to its end. A switch
(`gpuwm.vllm.extension`) and a weight transfer (`gpuwm.vllm.transfer`) make one in each rank.

A model has one move at a time. The move holds the lease of the version that the model is not on.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from .. import errors
from .._attach import attach
from .._mapping import Mapping as Attached
from ..image import _compare
from . import differences, model_loader

# If a move is older than this, its caller is dead: `gpuwm.vllm._switch` gives up long before.
STALE_S = 900.0
TAKE_OVER = "wait for it; if its caller is dead, take over (take_over=True, --take-over)"
Said = dict[str, Any]


class Move:
    """A move of a model.

    - token: of its caller.
    - other: the version that the model is not on: first the new one and, once the model has moved,
      the old one. Its lease keeps that version whole, whatever becomes of names and aliases.

    `prepare` may run in a thread of its own. What it sets is read under `lock`.
    """

    def __init__(self, token: str, model: model_loader.Loaded) -> None:
        self.token = token
        self.model = model
        self.before: Said = said_of(model.mapping)
        self.began: float = time.monotonic()
        self.lock: threading.Lock = threading.Lock()
        self.other: Attached | None = None
        self.ended: bool = False

    def prepare(self, ref: str, verify: bool) -> None:
        """Attaches to this rank's part of `ref`, compares it with the version that the model is on
        and, if `verify`, reads it again. Raises the errors of gpuwm.attach, `check` and
        Mapping.verify."""
        new = self._attach(ref)
        try:
            if new.version.id != self.before["id"]:
                check(self.model.mapping, new)
                if verify:
                    new.verify()
        except BaseException:
            new.drop()
            raise
        with self.lock:
            if not self.ended:
                self.other = new
                return
        new.drop()  # nobody waits for the move any more

    def _attach(self, ref: str) -> Attached:
        engine = self.model.engine
        return attach(
            ref,
            device=engine.device,
            rank=engine.ranks.rank,
            owner=engine.settings.owners,
            client=engine.client,
        )

    @property
    def has_moved(self) -> bool:
        return bool(self.model.mapping.version.id != self.before["id"])

    def exchange(self) -> None:
        """Moves the model there, or back. Raises the errors of Mapping.exchange, and NotFound if
        gpuwmd no longer has the new version, or its lease was revoked. Then nothing was done."""
        assert self.other is not None
        if not self.has_moved:
            self._check_kept(self.other)
        # `check` has compared all other plain values.
        globs = [glob for name in differences.WRITTEN_BY_LOADING for glob in (name, f"*.{name}")]
        self.model.mapping.exchange(self.other, stale=globs)
        for notify in self.model.moved:
            notify()

    def _check_kept(self, new: Attached) -> None:
        try:
            new.check()
        except errors.Error as error:
            raise errors.NotFound(
                f"{new.version} is gone since this engine was prepared for it: {error}",
                "look for it (gpuwmctl ls), load it again if it is not there, and switch again",
            ) from error

    def end(self) -> None:
        """Gives the other version's lease back."""
        with self.lock:
            self.ended = True
            other, self.other = self.other, None
        if other is not None:
            other.drop()


def make_way(model: model_loader.Loaded, take_over: bool = False, remedy: str = TAKE_OVER) -> None:
    """Ends a move whose caller is dead, and leaves the model where that move has left it. Raises
    Busy, with this remedy, if the move has not ended, is younger than STALE_S, and nobody takes it
    over."""
    move = model.move
    if move is None:
        return
    age = time.monotonic() - move.began
    if age < STALE_S and not take_over:
        raise errors.Busy(
            f"another switch of this engine began {age:.0f} s ago, and has not ended",
            remedy,
        )
    end(model)


def of(model: model_loader.Loaded, token: str) -> Move:
    """The model's move, if it has this token. Raises Cancelled."""
    if model.move is None or model.move.token != token:
        raise errors.Cancelled("another switch of this engine took this one's place")
    return model.move


def end(model: model_loader.Loaded) -> None:
    """Ends the model's move, if there is one. The model stays where it is."""
    move, model.move = model.move, None
    if move is not None:
        move.end()


def check(now: Attached, new: Attached) -> None:
    """Raises Mismatch, which names the first reason why a running model that is on `now` can't move
    to `new`. The key's fields on the checkpoint may differ: that is what a move is for."""
    differences.compare_versions(now, new)
    now.exchange(new, check=True)
    # A captured graph holds plain values as constants.
    found = _compare.difference(now, new, differences.WRITTEN_BY_LOADING)
    if found is not None:
        raise errors.Mismatch(
            f"{new.version} can't stand where {now.version} is: {found}",
            "a running engine can't take another value: start an engine on that version",
        )


def said_of(mapping: Attached) -> Said:
    """The version, for an answer: `version`, `id` and `bytes`."""
    return {
        "version": str(mapping.version),
        "id": mapping.version.id,
        "bytes": mapping.version.nbytes,
    }
