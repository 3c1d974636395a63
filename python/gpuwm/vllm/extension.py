"""What each rank of a running engine does to move to another version. `gpuwm.vllm.switching` calls
these methods in all ranks.

None of them raises: `gpuwm.vllm.answers` says what they return.

vLLM calls these methods in the thread that runs the model, so none of them may take long.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from .. import errors
from ..attaching import attach
from ..image import comparing
from ..mapping import Mapping as Attached
from . import differences, loading
from .answers import Answer, answering, failure

# The caller of a switch this old is dead: `gpuwm.vllm.switching` gives up long before.
STALE_S = 900.0


class _Move:
    """A move of this rank to another version, from `gpuwm_prepare` to `gpuwm_settle`.

    token: of the switch. `prepare` runs in a thread of its own; what it sets is read under `lock`.
    other: the version that the model is not on: first the new one, and the old one once the model
    has moved. Its lease keeps that version whole, whatever becomes of names and aliases.
    """

    def __init__(self, token: str, model: loading.Loaded) -> None:
        self.token = token
        self.model = model
        self.before = _version_of(model.mapping)
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.other: Attached | None = None
        self.failed: Answer | None = None  # no exception, whose frames would keep the lease
        self.ended = False

    def prepare(self, ref: str, verify: bool) -> None:
        try:
            new = self._attach(ref)
        except Exception as error:
            self._fail(error)
            return
        try:
            if new.version.id != self.before["id"]:
                check(self.model.mapping, new)
                if verify:
                    new.verify()
        except Exception as error:
            new.drop()
            self._fail(error)
            return
        with self.lock:
            if not self.ended:
                self.other = new
                return
        new.drop()  # nobody waits for it any more

    def _fail(self, error: Exception) -> None:
        with self.lock:
            self.failed = failure(error, "gpuwm_prepare")

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
        assert self.other is not None
        self.model.mapping.exchange(self.other)

    def end(self) -> None:
        """Gives the other version's lease back."""
        with self.lock:
            self.ended = True
            other, self.other = self.other, None
        if other is not None:
            other.drop()


class Extension:
    """For `--worker-extension-cls gpuwm.vllm.Extension`. `gpuwm.vllm.Worker` has these methods too.

    Arguments are texts, as vLLM's HTTP route passes them.
    """

    vllm_config: Any  # of vLLM's worker
    _gpuwm_move: _Move | None = None

    @answering
    def gpuwm_version(self) -> Answer:
        """The version that the model is on: `version`, `id` and `bytes`."""
        return _version_of(self._gpuwm_loaded().mapping)

    @answering
    def gpuwm_prepare(self, token: str, ref: str, verify: str, take_over: str) -> Answer:
        """Begins to attach to this rank's part of `ref`, to compare it with the version that the
        model is on and, if `verify` is "yes", to read it again. The model stays where it is, and
        steps go on meanwhile: ask `gpuwm_prepared`.

        Unsupported: the model is not in gpuwm's memory, or there are replicas. Busy: another switch
        has not ended. If its caller is dead, it makes way after STALE_S or if `take_over` is "yes".
        """
        parallel = self.vllm_config.parallel_config
        if parallel.data_parallel_size > 1:
            raise errors.Unsupported(
                "an engine with data parallelism can't be switched: vLLM tells the answers of its "
                "first replica only",
                "start an engine on the other version beside it",
            )
        self._gpuwm_make_way(take_over == "yes")
        move = _Move(token, self._gpuwm_loaded())
        threading.Thread(
            target=move.prepare, args=(ref, verify == "yes"), name="gpuwm-prepare", daemon=True
        ).start()
        self._gpuwm_move = move  # none is left behind if there is no room for a thread
        return {}

    @answering
    def gpuwm_prepared(self, token: str) -> Answer:
        """`pending` is True until the preparation has ended. Then the answer is of the new version,
        and `before` of the one that the model is on. Errors of gpuwm.attach and verify; Mismatch:
        the first difference in key, layout or plain values."""
        move = self._gpuwm_of(token)
        with move.lock:
            if move.failed is not None:
                return move.failed
            if move.other is None:
                return {"pending": True}
            return {**_version_of(move.other), "before": move.before, "pending": False}

    @answering
    def gpuwm_commit(self, token: str) -> Answer:
        """Moves the model to the version that was prepared, without gpuwmd. Call it while the
        engine is paused. The answer is of that version. Errors of Mapping.exchange, after which the
        model is where it was, but for Lost."""
        move = self._gpuwm_of(token)
        if not move.has_moved:
            move.exchange()
        return _version_of(move.model.mapping)

    @answering
    def gpuwm_settle(self, token: str, outcome: str) -> Answer:
        """Ends the switch. outcome: "new": the model stays where it is; "old": it goes back if it
        has moved, so the engine has to be paused. The answer is of the version that it is on then.
        The other one's lease ends. Nothing happens if the switch of this token has ended."""
        move = self._gpuwm_move
        if move is not None and move.token == token:
            if outcome == "old" and move.has_moved:
                move.exchange()
            self._gpuwm_end()
        return _version_of(self._gpuwm_loaded().mapping)

    # ---- how ----

    def _gpuwm_loaded(self) -> loading.Loaded:
        return loading.loaded(self.get_model())  # type: ignore[attr-defined]

    def _gpuwm_of(self, token: str) -> _Move:
        if self._gpuwm_move is None or self._gpuwm_move.token != token:
            raise errors.Cancelled("another switch of this engine took this one's place")
        return self._gpuwm_move

    def _gpuwm_make_way(self, take_over: bool) -> None:
        """Ends a switch whose caller is dead. The model stays where that switch has left it."""
        move = self._gpuwm_move
        if move is None:
            return
        age = time.monotonic() - move.began
        if age < STALE_S and not take_over:
            raise errors.Busy(
                f"another switch of this engine began {age:.0f} s ago, and has not ended",
                "wait for it; if its caller is dead, take over (take_over=True, --take-over)",
            )
        self._gpuwm_end()

    def _gpuwm_end(self) -> None:
        move, self._gpuwm_move = self._gpuwm_move, None
        if move is not None:
            move.end()


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


def _version_of(mapping: Attached) -> Answer:
    return {
        "version": str(mapping.version),
        "id": mapping.version.id,
        "bytes": mapping.version.nbytes,
    }
