"""The backend `gpuwm` of vLLM's weight transfer: an engine that serves takes other weights of its
own layout without copying weights.

    vllm serve MODEL --load-format gpuwm --weight-transfer-config '{"backend": "gpuwm"}' …

    start_weight_update
    update_weights {"ref": "policy@step-12"}    each rank attaches, compares and reads it again
    finish_weight_update                        each rank exchanges the two versions

A trainer makes such versions with `gpuwm.vllm.publisher`. This backend does not pause vLLM or empty
its caches: the caller does, as with every backend. `gpuwm.vllm.switch` does all of it.

All ranks move or none. In a process group of vLLM they tell each other how each step went. If one
rank failed, those that have moved go back, and all of them raise. The executor of vLLM 0.25 reads
the answers of several ranks only up to the first error, and takes the others for those of its next
call. So `gpuwm.vllm.Worker` lets only the last rank raise. A caller over HTTP gets the text of that
error and not its class, so the text begins with the class's name.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from .. import errors
from .._c import lib
from .._mapping import Mapping as Attached
from .._torch import registry
from ..engines.clock import Clock
from . import guards, model_loader, moves, refusals, releases

if TYPE_CHECKING:
    from ._bases import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
else:
    from vllm.distributed.weight_transfer.base import (
        WeightTransferEngine,
        WeightTransferInitInfo,
        WeightTransferUpdateInfo,
    )

log: logging.Logger = logging.getLogger("vllm.gpuwm")
Step = TypeVar("Step", bound=Callable[..., None])


def _naming(step: Step) -> Step:
    """Puts the class of a step's gpuwm.Error in front of the error's text."""

    @functools.wraps(step)
    def call(*arguments: Any, **named: Any) -> None:
        try:
            step(*arguments, **named)
        except errors.Error as error:
            if type(error) is errors.Error:  # a class that says nothing
                raise
            kind, message = type(error), f"{type(error).__name__}: {error.message}"
            raise kind(message, error.detail, code=error.code, name=error.name) from error

    return cast(Step, call)


# A weight transfer never takes over.
WAIT = f"wait for it; if its caller is dead, it makes way {moves.STALE_S:g} s after it began"


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Has no fields: gpuwmd is found as when the engine started."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """ref: "policy@step-12", "policy@prod", or a version's id. verify: whether each rank reads the
    version's bytes again and compares them with their digests."""

    ref: str
    verify: bool = True


class Engine(WeightTransferEngine):
    """One rank's half. vLLM calls its methods in all ranks, in the thread that runs the model. If
    one of them raises gpuwm.Error in one rank, it does so in all ranks."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False  # vLLM 0.33: a draft stays on its version

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        """Raises Unsupported if the model is in memory of the engine's own, there are replicas, or
        this vLLM does not call what this class has."""
        super().__init__(config, vllm_config, device, model)
        releases.check_overrides(Engine, WeightTransferEngine, own=("trainer_send_weights",))
        guards.check()
        if vllm_config.parallel_config.data_parallel_size > 1:
            raise errors.Unsupported(
                'weight transfer by the backend "gpuwm" refuses data parallelism: vLLM tells the '
                "answers of its first replica only",
                "start an engine for each replica",
            )
        self._loaded = model_loader.loaded(model)
        self._token = f"weight transfer {secrets.token_hex(8)}"
        self._clock = Clock()

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Does nothing: there is no connection to a trainer."""

    def start_weight_update(self, *arguments: Any, **named: Any) -> None:
        """Forgets an update that its caller left. vLLM 0.25 does not call this while an update is
        active: then `update_weights` forgets it. Newer releases pass more arguments."""
        self._forget()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Does what vLLM's own method does, but does not wait for the device, on which nothing was
        queued."""
        self.receive_weights(self.parse_update_info(update_info))

    @_naming
    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Prepares to move. The model stays where it is.

        Raises errors of gpuwm.attach and Mapping.verify (NotFound, Damaged, Refused…), Mismatch
        (the first difference in key, layout or plain values, or the ranks got different versions),
        and Busy (a switch has not ended, or an update was prepared before). After an error nothing
        has changed, and the caller starts again with start_weight_update.
        """
        self._clock = Clock()
        try:
            self._all(f"prepare {update_info.ref}", lambda: self._prepare(update_info))
            self._check_same(update_info.ref)
        except BaseException:
            self._forget()
            raise
        self._clock.lap("prepare")

    @_naming
    def finish_weight_update(self, *arguments: Any, **named: Any) -> None:
        """Moves to the version that was prepared. It does not need gpuwmd.

        Raises Invalid (nothing was prepared), Cancelled (a switch took over meanwhile), and errors
        of moving.Move.exchange. After an error all ranks are on the old version, and the caller
        goes on with update_weights, since vLLM regards the update as begun. After Lost this does
        not hold: the ranks may be on different versions, or one lost its memory, so the engine must
        be started again.
        """
        self._clock.lap("wait")
        try:
            self._all("move", self._exchange)
        except BaseException as error:
            self._go_back(error)
        self._clock.lap("exchange")
        move = self._loaded.move
        assert move is not None
        log.info(
            "gpuwm: weight transfer: %s -> %s (%s): prepare %.3f s, exchange %.3f s, refreshed %d "
            "bytes of private copies",
            move.before["version"],
            self._loaded.mapping.version,
            self._loaded.mapping.version.id,
            self._clock.times.get("prepare", 0.0),
            self._clock.times["exchange"],
            _private_bytes(self._loaded.mapping),
        )
        self._forget()

    def shutdown(self) -> None:
        """Gives back the lease of an update that was not finished."""
        self._forget()

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> NoReturn:
        """Raises Unsupported: a trainer sends no weights to engines, it publishes a version."""
        raise errors.Unsupported(
            'the backend "gpuwm" sends no weights',
            "publish them with gpuwm.vllm.publisher, and give engines the version: "
            'update_weights({"ref": "policy@step-12"})',
        )

    # ---- how ----

    def _prepare(self, update: UpdateInfo) -> None:
        if not isinstance(update.verify, bool):
            raise lib.wrong("verify", update.verify, "true or false")
        model = self._loaded
        if model.move is not None and model.move.token == self._token:
            raise errors.Busy(
                "update_weights was called before, and finish_weight_update was not: a version is "
                "whole, so one call is all that an update has",
                "start again with start_weight_update",
            )
        moves.make_way(model, remedy=WAIT)
        move = moves.Move(self._token, model)
        move.prepare(update.ref, update.verify)
        model.move = move

    def _check_same(self, ref: str) -> None:
        """Compares the versions of all ranks: an alias may have moved between two ranks.
        Collective."""
        move = self._loaded.move
        assert move is not None
        assert move.other is not None
        found = self._loaded.engine.ranks.gather(
            (move.other.version.id, str(move.other.version)),
        )
        several = sorted({f"{name} ({number})" for number, name in found})
        if len(several) > 1:
            raise errors.Mismatch(
                f"{ref} is not the same version for all ranks: {', '.join(several)}",
                "its alias moved meanwhile: update again, or name a tag",
            )

    def _exchange(self) -> None:
        if self._loaded.move is None:
            raise errors.Invalid(
                "finish_weight_update without update_weights: there is no version to move to",
                'call update_weights({"ref": "policy@step-12"}) first',
            )
        move = moves.of(self._loaded, self._token)
        assert move.other is not None
        if not move.has_moved and move.other.version.id != move.before["id"]:
            move.exchange()

    def _go_back(self, first: BaseException) -> NoReturn:
        """Goes back, because some rank could not move. Raises `first`, or Lost."""
        move = self._loaded.move
        mine = move is not None and move.token == self._token
        # If the exchange raised Lost, this rank has no memory, and can't go back.
        error: BaseException | None = first if isinstance(first, errors.Lost) else None
        try:
            if mine and move is not None and move.has_moved:
                move.exchange()
        except Exception as failed:
            error = failed
        try:
            self._loaded.engine.ranks.agree("go back", error)
        except errors.Error as second:
            raise errors.Lost(
                f"the weight update failed: {type(first).__name__}: {first}; nor could all ranks "
                f"go back: {type(second).__name__}: {second}",
                "ranks may be on different versions: do not resume the engine, start it again",
            ) from first
        self._forget()
        raise first

    def _all(self, what: str, step: Callable[[], None]) -> None:
        """Runs the step in all ranks. Raises in all if it failed in one. Collective."""
        error: BaseException | None = None
        try:
            step()
        except errors.Error as failed:
            error = failed
        except Exception as failed:  # the rank goes on, so that the others need not end
            error = errors.Error(f"{type(failed).__name__}: {failed}", "the rank's log says more")
            log.exception("gpuwm: a weight update could not %s", what)
        self._loaded.engine.ranks.agree(what, error)

    def _forget(self) -> None:
        """Ends this update's move, if it has not ended. The model stays where it is."""
        move = self._loaded.move
        if move is not None and move.token == self._token:
            moves.end(self._loaded)


def _private_bytes(mapping: Attached) -> int:
    """The bytes that an exchange copies: of buffers, and of what the loader's "private" names."""
    bound = (tensor for each, tensor in registry.all_bound(mapping) if each.private)
    copied = (tensor for _, tensor in registry.all_copied(mapping))
    return sum(tensor.nbytes for tensor in (*bound, *copied))


# Methods of vLLM's worker that all ranks run for one call, in the releases that have them.
STEPS = (
    "init_weight_transfer_engine",
    "start_weight_update",
    "start_draft_weight_update",
    "update_weights",
    "finish_weight_update",
)


def last_rank_tells(step: Callable[..., None]) -> Callable[..., None]:
    """A method of a worker that does what `step` does. If it fails in all ranks, only the last rank
    raises. See the module's docstring."""

    @functools.wraps(step)
    def told(worker: Any, *arguments: Any, **named: Any) -> None:
        call = functools.partial(step, worker)
        told_by_the_last(worker.vllm_config, call, *arguments, **named)

    return told


def told_by_the_last(
    vllm_config: Any, call: Callable[..., None], *arguments: Any, **named: Any
) -> None:
    """Wraps a step of a weight update, for a worker's method: if the step fails in all ranks, only
    the last rank raises. See the module's docstring."""
    parallel, transfer = vllm_config.parallel_config, vllm_config.weight_transfer_config
    ours = transfer is not None and transfer.backend == refusals.WEIGHT_TRANSFER
    if not ours or parallel.rank == parallel.world_size - 1:
        call(*arguments, **named)
        return
    try:
        call(*arguments, **named)
    except Exception as error:
        log.warning("gpuwm: the last rank tells that a weight update failed: %s", error)
