"""The methods with which each rank of a running engine moves to another version.
`gpuwm.vllm._switch` calls them in all ranks.

None of them raises: `gpuwm.vllm.answers` says what they return.

vLLM calls these methods in the thread that runs the model, so none of them may take long.
"""

from __future__ import annotations

import threading
from typing import Any, cast

from .. import errors
from . import model_loader, moves
from .answers import Answer, answering, failure


class _Prepared(moves.Move):
    """A move that is prepared in a thread of its own. failed: how the preparation failed, or None.
    It is not an exception, whose frames would keep the lease."""

    failed: Answer | None = None

    def run(self, ref: str, verify: bool) -> None:
        try:
            self.prepare(ref, verify)
        except Exception as error:
            with self.lock:
                self.failed = failure(error, "gpuwm_prepare")


class Extension:
    """For `--worker-extension-cls gpuwm.vllm.Extension`. `gpuwm.vllm.Worker` has these methods too.

    Arguments are texts, as vLLM's HTTP route passes them.
    """

    vllm_config: Any  # of vLLM's worker

    @answering
    def gpuwm_version(self) -> Answer:
        """Returns the version that the model is on: `version`, `id` and `bytes`."""
        return moves.said_of(self._gpuwm_loaded().mapping)

    @answering
    def gpuwm_prepare(self, token: str, ref: str, verify: str, take_over: str) -> Answer:
        """Begins to attach to this rank's part of `ref`, to compare it with the version that the
        model is on and, if `verify` is "yes", to read it again. The model stays where it is, and
        steps go on meanwhile. `gpuwm_prepared` tells when it has ended.

        Unsupported: the model is not in gpuwm's memory, or there are replicas. Busy: another switch
        has not ended. If the caller of that switch is dead, that switch makes way after
        moving.STALE_S, or if `take_over` is "yes".
        """
        parallel = self.vllm_config.parallel_config
        if parallel.data_parallel_size > 1:
            raise errors.Unsupported(
                "an engine with data parallelism can't be switched: vLLM tells the answers of its "
                "first replica only",
                "start an engine on the other version beside it",
            )
        model = self._gpuwm_loaded()
        moves.make_way(model, take_over == "yes")
        move = _Prepared(token, model)
        threading.Thread(
            target=move.run, args=(ref, verify == "yes"), name="gpuwm-prepare", daemon=True
        ).start()
        model.move = move  # set only now: if there is no room for a thread, no move is left behind
        return {}

    @answering
    def gpuwm_prepared(self, token: str) -> Answer:
        """Returns `pending` True until the preparation has ended. Then the answer describes the new
        version, and `before` the one that the model is on. Errors of gpuwm.attach and verify;
        Mismatch: the first difference in key, layout or plain values."""
        move = self._gpuwm_of(token)
        with move.lock:
            if move.failed is not None:
                return move.failed
            if move.other is None:
                return {"pending": True}
            return {**moves.said_of(move.other), "before": move.before, "pending": False}

    @answering
    def gpuwm_commit(self, token: str) -> Answer:
        """Moves the model to the version that was prepared. It does not need gpuwmd. Call it while
        the engine is paused. The answer describes that version. Errors of Mapping.exchange: after
        these the model is where it was, except after Lost."""
        move = self._gpuwm_of(token)
        if not move.has_moved:
            move.exchange()
        return moves.said_of(move.model.mapping)

    @answering
    def gpuwm_settle(self, token: str, outcome: str) -> Answer:
        """Ends the switch. outcome: "new": the model stays where it is. "old": the model goes back
        if it has moved, so the engine must be paused. The answer describes the version that the
        model is on then. The lease of the other version ends. If the switch of this token has ended
        already, nothing happens."""
        model = self._gpuwm_loaded()
        move = model.move
        if move is not None and move.token == token:
            if outcome == "old" and move.has_moved:
                move.exchange()
            moves.end(model)
        return moves.said_of(model.mapping)

    # ---- how ----

    def _gpuwm_loaded(self) -> model_loader.Loaded:
        return model_loader.loaded(self.get_model())  # type: ignore[attr-defined]

    def _gpuwm_of(self, token: str) -> _Prepared:
        return cast(_Prepared, moves.of(self._gpuwm_loaded(), token))
