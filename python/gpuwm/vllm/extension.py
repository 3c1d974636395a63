"""What each rank of a running engine does to move to another version. `gpuwm.vllm.switching` calls
these methods in all ranks.

vLLM's executor raises the exception of the first rank that failed, and then takes the answers of
later ranks for those of its next call. So nothing here raises: each method returns a dict that JSON
can hold. It has `rank` and, if the method failed, `error` (the class), `message` and `detail`.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any

from .. import errors
from ..attaching import attach
from ..image import comparing
from ..mapping import Mapping as Attached
from . import differences, loading

log = logging.getLogger("vllm.gpuwm")
Answer = dict[str, Any]


@dataclasses.dataclass
class _Move:
    """A move of this rank to another version, from `prepare` to `settle`.

    token: of the switch. other: the version that the model is not on: the new one first, and the
    old one once `moved`. Its lease keeps that version whole, whatever becomes of names and aliases.
    """

    token: str
    model: loading.Loaded
    other: Attached
    moved: bool = False

    def exchange(self) -> None:
        self.model.mapping.exchange(self.other)
        self.moved = not self.moved


def _answering(method: Callable[..., Answer]) -> Callable[..., Answer]:
    @functools.wraps(method)
    def answer(self: Extension, *arguments: Any) -> Answer:
        try:
            return {"rank": self._gpuwm_rank(), **method(self, *arguments)}
        except Exception as error:  # see the module's text
            log.warning("gpuwm: %s: %s: %s", method.__name__, type(error).__name__, error)
            return {
                "rank": self._gpuwm_rank(),
                "error": type(error).__name__,
                "message": getattr(error, "message", str(error)),
                "detail": getattr(error, "detail", ""),
            }

    return answer


class Extension:
    """For `--worker-extension-cls gpuwm.vllm.Extension`. `gpuwm.vllm.Worker` has these methods too.

    vLLM calls them in the thread that runs the model, so no step runs meanwhile. Arguments are
    texts, as vLLM's HTTP route passes them.
    """

    vllm_config: Any  # of vLLM's worker
    _gpuwm_move: _Move | None = None

    @_answering
    def gpuwm_version(self) -> Answer:
        """The version that the model is on: `version` and `id`."""
        return _said(self._gpuwm_loaded().mapping)

    @_answering
    def gpuwm_prepare(self, token: str, ref: str, verify: str = "yes") -> Answer:
        """Attaches to this rank's part of `ref`, compares it with the version that the model is on
        and, unless `verify` is "no", reads it again. The model stays where it is.

        The answer is of the new version, and `before` of the other. A preparation that was not
        settled ends, since whoever began it may be dead. Errors of gpuwm.attach and verify;
        Mismatch: the first difference in key, layout or plain values; Unsupported: the model is not
        in gpuwm's memory, or there are replicas; Busy: the model has moved, but that switch was not
        settled.
        """
        if self._gpuwm_move is not None and self._gpuwm_move.moved:
            raise errors.Busy(
                f"another switch, to {self._gpuwm_loaded().mapping.version}, is not settled",
                "wait for it; if whoever began it is dead, start the engine again",
            )
        parallel = self.vllm_config.parallel_config
        if parallel.data_parallel_size > 1:
            raise errors.Unsupported(
                "an engine with data parallelism can't be switched: vLLM tells the answers of its "
                "first replica only",
                "start the other version's engine beside it",
            )
        self._gpuwm_drop()
        here = self._gpuwm_loaded()
        engine, now = here.engine, here.mapping
        new = attach(
            ref,
            device=engine.device,
            rank=engine.ranks.rank,
            owner=engine.settings.owners,
            client=engine.client,
        )
        try:
            if new.version.id != now.version.id:
                check(now, new)
                if verify != "no":
                    new.verify()
        except BaseException:
            new.drop()
            raise
        self._gpuwm_move = _Move(token, here, new)
        return {**_said(new), "before": _said(now)}

    @_answering
    def gpuwm_commit(self, token: str) -> Answer:
        """Moves the model to the version that was prepared, without gpuwmd. Call it while the
        engine is paused. The answer is of that version. Errors of Mapping.exchange, after which the
        model is where it was, but for Lost."""
        move = self._gpuwm_of(token)
        if not move.moved and move.other.version.id != move.model.mapping.version.id:
            move.exchange()
        return _said(move.model.mapping)

    @_answering
    def gpuwm_settle(self, token: str, outcome: str) -> Answer:
        """Ends the switch. outcome: "new": the model stays where it is; "old": it goes back if it
        has moved, so the engine has to be paused. The answer is of the version that it is on then.
        The other one's lease ends. Nothing happens if the switch of this token has ended."""
        move = self._gpuwm_move
        if move is not None and move.token == token:
            if outcome == "old" and move.moved:
                move.exchange()
            move.moved = False
            self._gpuwm_drop()
        return _said(self._gpuwm_loaded().mapping)

    # ---- how ----

    def _gpuwm_rank(self) -> int:
        return int(getattr(self, "rank", 0))

    def _gpuwm_loaded(self) -> loading.Loaded:
        return loading.loaded(self.get_model())  # type: ignore[attr-defined]

    def _gpuwm_of(self, token: str) -> _Move:
        if self._gpuwm_move is None or self._gpuwm_move.token != token:
            raise errors.Busy(
                "another switch of this engine began after this one", "switch again if need be"
            )
        return self._gpuwm_move

    def _gpuwm_drop(self) -> None:
        move, self._gpuwm_move = self._gpuwm_move, None
        if move is not None:
            move.other.drop()


def check(now: Attached, new: Attached) -> None:
    """Mismatch: the first thing for which a running model that is on `now` can't move to `new`. The
    key's fields on the checkpoint may differ, as that is what a switch is for."""
    differences.compare_versions(now, new)
    now.exchange(new, check=True)
    # A captured graph holds plain values as constants.
    found = comparing.difference(now, new, differences.WRITTEN_BY_LOADING)
    if found is not None:
        raise errors.Mismatch(
            f"{new.version} can't stand where {now.version} is: {found}",
            "a running engine can't take another value: start an engine on that version",
        )


def _said(mapping: Attached) -> Answer:
    return {
        "version": str(mapping.version),
        "id": mapping.version.id,
        "bytes": mapping.version.nbytes,
    }
