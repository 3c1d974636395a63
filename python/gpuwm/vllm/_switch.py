"""A running engine moves to other weights: all of its ranks or none, and no request is lost.

    import gpuwm.vllm

    gpuwm.vllm.switch(llm, "llama@v2")
    gpuwm.vllm.switch("http://localhost:8000", "llama@prod", mode="finish")
    await gpuwm.vllm.switch_async(engine, "llama@v2")

The engine's ranks need the other half: `--worker-extension-cls gpuwm.vllm.Extension`, or
`--worker-cls gpuwm.vllm.Worker`. A URL needs VLLM_SERVER_DEV_MODE=1 in the server's environment.

1. While the engine serves, each rank attaches to its part of the new version, compares it with what
   it has, and reads it again. If one can't, nothing has changed.
2. With mode "finish", requests in flight end first, while others wait. Then the engine is paused,
   and the caches of what the old weights computed are emptied.
3. Each rank exchanges the two versions at the same addresses, so captured CUDA graphs stay valid.
   This does not need gpuwmd. If one rank can't, those that have moved go back.
4. The engine goes on, and the leases of the old version end.

A draft model stays on its version. The target checks its guesses, so answers are right.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import Any

from .. import errors
from ..engines.clock import Clock
from .calls import Ranks, as_gpuwm_errors
from .targets import FINISH, KEEP, Answers, Target, target_of

log = logging.getLogger("vllm.gpuwm")
PREPARE_S = 120.0  # to map a version and read it once takes seconds, even on a busy host
COMMIT_S = 30.0  # an exchange takes milliseconds, and waits for the device
DRAIN_S = 600.0  # longer than most answers; together with the others it is below moving.STALE_S
# The pauses between two questions whether all ranks are prepared: from a fraction of what that
# takes on a GPU to a time that nobody notices on a host.
_LOOK_S, _LOOK_S_MAX = 0.005, 0.2


class StillPaused(errors.Error):
    """The engine was paused, and did not answer when it was to be resumed."""


@dataclasses.dataclass(frozen=True)
class Switched:
    """What a switch did.

    - version, id: of the version that the engine is on now.
    - before: the version that it was on.
    - moved: whether these two differ.
    - ranks: how many there are.
    - seconds: of "prepare" and, if the engine moved, of "pause" (with mode "finish" until the last
      request had ended), "exchange" (in all ranks) and "resume" (also if it took over). No step
      runs from some moment in "pause" to some moment in "resume".
    """

    version: str
    id: str
    before: str
    moved: bool
    ranks: int
    seconds: dict[str, float]


def switch(
    target: Any,
    ref: str,
    *,
    mode: str = KEEP,
    verify: bool = True,
    drain: float | None = None,
    take_over: bool = False,
) -> Switched:
    """Moves an engine to another version of the same layout. The module's docstring says how.

    - target: a `vllm.LLM`, or the URL of a server.
    - ref: "llama@v2", "llama@prod", or a version's id.
    - mode: "keep": requests in flight go on with the new weights, and their KV is computed anew.
      The begin of such an answer is the old weights' and its end the new weights'. "finish":
      requests in flight end on the old weights first, for at most `drain` seconds (DRAIN_S, which
      is also the most). In both modes requests that come meanwhile wait.
    - verify: whether each rank reads the new version's bytes again.
    - take_over: the caller of another switch that has not ended is dead. That switch may have left
      the engine paused, and the engine is resumed then. Without take_over that switch makes way
      after moving.STALE_S.

    After these errors nothing has changed, and the engine serves: NotFound, Refused, Damaged
    (tainted, or bytes that differ from the digests), Mismatch (the first difference in key, layout
    or a plain value, which a captured graph may hold), Unsupported (its weights are not in gpuwm's
    memory), Busy (another switch has not ended, or the engine is paused or asleep), Unreachable,
    TimedOut, and other errors of gpuwm.attach.

    Other errors:

    - Cancelled: another switch took over.
    - Lost: ranks may be on different versions, or one has no memory, so the engine is left paused:
      start it again.
    - StillPaused: the engine was paused, did not answer when it was to be resumed, and may have
      moved.
    """
    to = target_of(target)
    if hasattr(target, "pause_generation"):
        raise errors.Invalid(
            "an asynchronous engine needs its event loop", "await gpuwm.vllm.switch_async(…)"
        )
    return _run(_switch(to, ref, mode, verify, drain, take_over))


async def switch_async(
    target: Any,
    ref: str,
    *,
    mode: str = KEEP,
    verify: bool = True,
    drain: float | None = None,
    take_over: bool = False,
) -> Switched:
    """Does what `switch` does, for a client of vLLM's asynchronous engine (AsyncLLM), in its event
    loop. If it is cancelled, it goes back, and the engine goes on with the old weights."""
    return await _switch(target_of(target), ref, mode, verify, drain, take_over)


def _run(switching: Coroutine[Any, Any, Switched]) -> Switched:
    """Runs a coroutine that never waits for an event loop, so it can be called inside of a running
    one."""
    try:
        switching.send(None)
    except StopIteration as end:
        found: Switched = end.value
        return found
    switching.close()
    raise AssertionError("a target waited for an event loop")


async def _switch(
    target: Target, ref: str, mode: str, verify: bool, drain: float | None, take_over: bool
) -> Switched:
    limit = _drain_limit(mode, drain)
    one = _Switch(target, secrets.token_hex(8))
    clock = Clock()
    new = await one.prepare(ref, verify, take_over)
    clock.lap("prepare")
    moved = bool(new[0]["id"] != new[0]["before"]["id"])
    if moved:
        await one.pause(mode, limit)
        clock.lap("pause")
        await one.exchange(new[0]["id"])
        clock.lap("exchange")
    if moved or take_over:
        await one.resume(new[0]["version"])
        clock.lap("resume")
    await one.settle()
    switched = Switched(
        version=new[0]["version"],
        id=new[0]["id"],
        before=new[0]["before"]["version"],
        moved=moved,
        ranks=len(new),
        seconds=clock.times,
    )
    log.info("gpuwm: %s is on %s now, before on %s", target.name, switched.version, switched.before)
    return switched


def _drain_limit(mode: str, drain: float | None) -> float:
    """The limit in seconds, for mode FINISH. Raises Invalid for an unknown mode, or a wrong
    `drain`."""
    if mode not in (KEEP, FINISH):
        raise errors.Invalid(f"mode {mode!r}", f'it is "{KEEP}" or "{FINISH}"')
    if drain is None:
        return DRAIN_S
    if mode == KEEP:
        raise errors.Invalid(f'drain with mode "{KEEP}"', f'only "{FINISH}" waits for requests')
    if not 0 < drain <= DRAIN_S:
        raise errors.Invalid(f"drain of {drain:g} s", f"more than 0, and at most {DRAIN_S:g}")
    return drain


class _Switch:
    """One switch of one engine. If one of its methods raises, it has already cleaned up."""

    def __init__(self, target: Target, token: str) -> None:
        self._target = target
        self._ranks = Ranks(target, token)

    async def prepare(self, ref: str, verify: bool, take_over: bool) -> Answers:
        try:
            await self._ranks.call(
                "gpuwm_prepare", [ref, _text(verify), _text(take_over)], COMMIT_S, "prepare"
            )
            new = await self._prepared()
            if torn := _several([rank["before"] for rank in new]):
                raise errors.Error(
                    f"the ranks of {self._target.name} are on different versions: {torn}",
                    "an earlier switch was cut off: start the engine again",
                )
            if several := _several(new):
                raise errors.Mismatch(
                    f"{ref} is not the same version for all ranks: {several}",
                    "its alias moved meanwhile: switch again",
                )
            moves = new[0]["id"] != new[0]["before"]["id"]
            if moves and not take_over and await self._is_stopped():
                raise errors.Busy(
                    f"{self._target.name} is paused or asleep", "resume or wake it, then switch"
                )
        except BaseException as error:
            await self._leave()
            raise _without_lost(error) from None
        return new

    async def _prepared(self) -> Answers:
        end, look = time.monotonic() + PREPARE_S, _LOOK_S
        while True:
            answers = await self._ranks.call("gpuwm_prepared", [], COMMIT_S, "prepare")
            if not any(rank["pending"] for rank in answers):
                return answers
            if time.monotonic() > end:
                late = ", ".join(str(rank["rank"]) for rank in answers if rank["pending"])
                raise errors.TimedOut(
                    f"{self._target.name}, rank {late}, was not prepared in {PREPARE_S:g} s",
                    "see the engine's log",
                )
            await self._target.wait(look)
            look = min(2 * look, _LOOK_S_MAX)

    async def pause(self, mode: str, limit: float) -> None:
        """Pauses the engine. limit: seconds that requests have to end, with mode FINISH."""
        late = remedy = ""
        try:
            if mode == FINISH:
                late = f"was not idle in {limit:g} s"
                remedy = 'give it longer (drain=), or mode="keep"'
                await self._target.drain(limit)
            late, remedy = f"could not be paused in {COMMIT_S:g} s", "does it hang?"
            await self._target.pause(COMMIT_S)
        except BaseException as error:
            try:
                await self._resume_after(
                    error, 0.0 if _was_answered(error) else self._target.late_s
                )
            finally:
                await self._leave()
            if not isinstance(error, TimeoutError):
                raise
            raise errors.TimedOut(
                f"{self._target.name} {late}; it goes on, on the old weights", remedy
            ) from error

    async def exchange(self, new: str) -> None:
        """Moves all ranks to the version with this id. If it raises, all ranks are where they were
        and the engine goes on, except after Lost."""
        try:
            moved = await self._ranks.call("gpuwm_commit", [], COMMIT_S, "exchange")
            if any(rank["id"] != new for rank in moved):
                raise errors.Error(f"{self._target.name} exchanged another version: {moved}")
        except errors.Cancelled:
            raise  # the switch that took over pauses and resumes it
        except BaseException as error:
            try:
                back = await self._settle("old")
            except BaseException as second:
                raise self._lost(error, str(second)) from error
            if stays := [str(rank["rank"]) for rank in back if rank["id"] == new]:
                raise self._lost(error, f"rank {', '.join(stays)} has moved") from error
            if isinstance(error, errors.Lost):
                raise self._lost(error, "in that rank neither version is mapped now") from error
            await self._resume_after(error)
            raise

    def _lost(self, first: BaseException, second: str) -> errors.Lost:
        return errors.Lost(
            f"{self._target.name} could not be switched: {first}; nor could all ranks go back: "
            f"{second}",
            "it can't serve, so it is left paused: start it again",
        )

    async def resume(self, version: str) -> None:
        try:
            await self._target.resume()
        except BaseException as error:
            goes_on = False
            try:
                goes_on = await self._go_on()  # once more, since Ctrl-C may have come in between
            finally:
                if not (goes_on and isinstance(error, Exception)):
                    await self.settle()
            if not isinstance(error, Exception):
                raise
            if not goes_on:
                raise self._still_paused(f"is on {version} now", error) from error

    async def settle(self) -> None:
        """Ends the switch in all ranks. The engine has moved, so it is no error if a rank can't
        give its other lease back. The lease is given back at the next switch, or at the engine's
        end."""
        try:
            await self._settle("new")
        except Exception as error:
            log.warning("gpuwm: %s still holds the old version: %s", self._target.name, error)

    async def _resume_after(self, error: BaseException, late_s: float = 0.0) -> None:
        """Resumes the engine after an error with which no rank has moved. Raises StillPaused.
        late_s: as in _go_on."""
        if not await self._go_on(late_s) and isinstance(error, Exception):
            raise self._still_paused("was not switched", error) from error

    def _still_paused(self, what: str, error: Exception) -> StillPaused:
        return StillPaused(
            f"{self._target.name} {what}, but may still be paused: {error}",
            "resume it by another switch with take_over=True (--take-over), or start it again",
        )

    async def _go_on(self, late_s: float = 0.0) -> bool:
        """Resumes the engine, and raises no error. Returns whether it goes on. late_s: how long a
        pause that the engine has not answered may still come."""
        try:
            await self._target.resume()
            end = time.monotonic() + late_s
            while time.monotonic() < end:
                await self._target.wait(_LOOK_S_MAX)
                if await self._target.is_stopped():
                    await self._target.resume()
        except Exception as error:
            log.warning("gpuwm: %s may still be paused: %s", self._target.name, error)
            return False
        return True

    async def _leave(self) -> None:
        try:
            await self._settle("old")
        except Exception as error:
            log.debug("gpuwm: %s: %s", self._target.name, error)  # the first error counts

    async def _settle(self, outcome: str) -> Answers:
        return await self._ranks.call("gpuwm_settle", [outcome], COMMIT_S, "end the switch")

    async def _is_stopped(self) -> bool:
        with as_gpuwm_errors(self._target.name, "tell whether it is paused"):
            return await self._target.is_stopped()


def _text(flag: bool) -> str:
    return "yes" if flag else "no"


def _was_answered(error: BaseException) -> bool:
    unanswered = (TimeoutError, errors.Unreachable)
    return isinstance(error, Exception) and not isinstance(error, unanswered)


def _without_lost(error: BaseException) -> BaseException:
    """Lost is for engines here: if a restart of gpuwmd has lost a version, that is NotFound."""
    if isinstance(error, errors.Lost):
        return errors.NotFound(error.message, error.detail)
    return error


def _several(ranks: Answers) -> str:
    """The versions, if not all ranks name the same one."""
    found = {rank["id"]: rank["version"] for rank in ranks}
    if len(found) == 1:
        return ""
    return ", ".join(f"{name} ({number})" for number, name in found.items())
