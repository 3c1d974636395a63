"""A running engine moves to other weights: all of its ranks or none, and no request is lost.

    gpuwm.vllm.switch(llm, "llama@v2")
    gpuwm.vllm.switch("http://localhost:8000", "llama@prod", mode="finish")
    await gpuwm.vllm.switch_async(engine, "llama@v2")

The engine's ranks need the other half: `--worker-extension-cls gpuwm.vllm.Extension`, or
`--worker-cls gpuwm.vllm.Worker`. A URL needs VLLM_SERVER_DEV_MODE=1 in the server's environment.

1. While the engine serves, each rank attaches to its part of the new version, compares it with what
   it has, and reads it again. If one can't, nothing has changed.
2. The engine is paused, and caches of what the old weights computed are emptied.
3. Each rank exchanges the two versions at the same addresses, so captured CUDA graphs stay valid.
   That needs no gpuwmd. If one rank can't, those that have moved go back.
4. The engine goes on, and the leases of the old version end.

A draft model stays on its version: its guesses are checked by the target, so answers are right.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from collections.abc import Coroutine
from typing import Any

from .. import errors
from .targets import FINISH, KEEP, Answers, Target, target_of

log = logging.getLogger("gpuwm")
PREPARE_S = 120.0  # each rank maps a version and reads it once: seconds, even on a busy host
COMMIT_S = 30.0  # an exchange takes milliseconds, and waits for the device


@dataclasses.dataclass(frozen=True)
class Switched:
    """What a switch did. version, id: what the engine is on now. before: what it was on. moved: it
    was on another one. ranks: how many there are. seconds: of "prepare" and, if it moved, "pause"
    (with mode "finish" until the last request had ended), "exchange" (in all ranks) and "resume".
    No step runs from somewhere in "pause" to somewhere in "resume"."""

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
) -> Switched:
    """Moves an engine to another version of the same layout; the module's text says how.

    target: a `vllm.LLM`, or the URL of a server. ref: "llama@v2", "llama@prod", a version's id.
    mode: "keep": requests in flight go on with the new weights, and their KV is computed anew: an
    answer is then the beginning of an old one and goes on as a new one. "finish": they end on the
    old weights first, and requests that come meanwhile wait; `drain`: for so many seconds, None:
    for as long as it takes. verify: whether each rank reads the new version's bytes again.

    Nothing has changed, and the engine serves, after NotFound, Refused, Damaged (tainted, or bytes
    that differ from the digests), Mismatch (the first difference in key, layout or a plain value,
    which a captured graph may hold), Unsupported (its weights are not in gpuwm's memory), Busy
    (another switch came between), Unreachable, TimedOut. Lost: ranks may be on different versions,
    so the engine is left paused: start it again. Several callers are safe: one of them wins.
    """
    to = target_of(target)
    if hasattr(target, "pause_generation"):
        raise errors.Invalid(
            "an asynchronous engine needs its event loop", "await gpuwm.vllm.switch_async(…)"
        )
    return _run(_switch(to, ref, mode, verify, drain))


async def switch_async(
    target: Any,
    ref: str,
    *,
    mode: str = KEEP,
    verify: bool = True,
    drain: float | None = None,
) -> Switched:
    """As `switch`, for a client of vLLM's asynchronous engine (AsyncLLM), in its event loop."""
    return await _switch(target_of(target), ref, mode, verify, drain)


def _run(switching: Coroutine[Any, Any, Switched]) -> Switched:
    """Runs a coroutine that never waits for an event loop, so that it may be called below one."""
    try:
        switching.send(None)
    except StopIteration as end:
        found: Switched = end.value
        return found
    switching.close()
    raise AssertionError("a target waited for an event loop")


async def _switch(
    target: Target, ref: str, mode: str, verify: bool, drain: float | None
) -> Switched:
    if mode not in (KEEP, FINISH):
        raise errors.Invalid(f"mode {mode!r}", f'it is "{KEEP}" or "{FINISH}"')
    one = _Switch(target, secrets.token_hex(8))
    clock = _Clock()
    new = await one.prepare(ref, verify)
    clock.lap("prepare")
    moved = new[0]["id"] != new[0]["before"]["id"]
    if moved:
        await one.pause(mode, drain)
        clock.lap("pause")
        await one.exchange(new[0]["id"])
        clock.lap("exchange")
        await one.resume(new[0]["version"])
        clock.lap("resume")
    await one.settle()
    found = Switched(
        version=new[0]["version"],
        id=new[0]["id"],
        before=new[0]["before"]["version"],
        moved=moved,
        ranks=len(new),
        seconds=clock.times,
    )
    log.info("gpuwm: %s is on %s now, before on %s", target.name, found.version, found.before)
    return found


class _Clock:
    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, what: str) -> None:
        now = time.perf_counter()
        self.times[what] = now - self._last
        self._last = now


class _Switch:
    """One switch of one engine. After an error of a method nothing of it is left to do."""

    def __init__(self, target: Target, token: str) -> None:
        self._target, self._token = target, token

    async def prepare(self, ref: str, verify: bool) -> Answers:
        try:
            new = await self._all(
                "gpuwm_prepare", [ref, "yes" if verify else "no"], PREPARE_S, "prepare"
            )
            for what, found in (("now", [rank["before"] for rank in new]), ("next", new)):
                _same(what, found)
        except BaseException:
            await self._leave()
            raise
        return new

    async def pause(self, mode: str, drain: float | None) -> None:
        try:
            await self._target.pause(mode, drain if mode == FINISH else COMMIT_S)
        except BaseException as error:
            await self._go_on()
            await self._leave()
            if isinstance(error, TimeoutError):
                raise errors.TimedOut(
                    f"{self._target.name} was not idle in time; it goes on, on the old weights",
                    'give it longer (drain=), or mode="keep"',
                ) from error
            raise

    async def exchange(self, new: str) -> None:
        """All ranks are on the version of this id. If it raises, all are where they were and the
        engine goes on, but after Lost."""
        try:
            _same("now", await self._all("gpuwm_commit", [], COMMIT_S, "exchange"))
        except BaseException as error:
            try:
                back = await self._settle("old")
            except Exception as second:
                raise self._lost(error, str(second)) from error
            if moved := [str(rank["rank"]) for rank in back if rank["id"] == new]:
                raise self._lost(error, f"rank {', '.join(moved)} has moved") from error
            await self._go_on()
            raise

    def _lost(self, first: BaseException, second: str) -> errors.Lost:
        return errors.Lost(
            f"{self._target.name} could not be switched: {first}; nor could all ranks go back: "
            f"{second}",
            "its ranks may be on different versions, so it is left paused: start it again",
        )

    async def resume(self, version: str) -> None:
        try:
            await self._target.resume()
        except Exception as error:
            await self.settle()
            raise errors.Error(
                f"{self._target.name} is on {version} now, but may be paused yet: {error}",
                "resume it, or start it again",
            ) from error

    async def settle(self) -> None:
        """The engine has moved: that a rank can't give its other lease back is no error. It is
        given back with the next switch, or the engine's end."""
        try:
            await self._settle("new")
        except Exception as error:
            log.warning("gpuwm: %s has a lease too many: %s", self._target.name, error)

    async def _go_on(self) -> None:
        """After an error, which counts more than what is raised here."""
        try:
            await self._target.resume()
        except Exception as error:
            log.warning("gpuwm: %s may be paused yet: %s", self._target.name, error)

    async def _leave(self) -> None:
        try:
            await self._settle("old")
        except Exception as error:
            log.debug("gpuwm: %s: %s", self._target.name, error)  # the first error counts

    async def _settle(self, outcome: str) -> Answers:
        return await self._all("gpuwm_settle", [outcome], COMMIT_S, "end the switch")

    async def _all(self, method: str, arguments: list[str], timeout: float, what: str) -> Answers:
        """The answers of all ranks, of which none failed."""
        name = self._target.name
        try:
            answers = await self._target.call(method, [self._token, *arguments], timeout)
        except errors.Error:
            raise
        except TimeoutError as error:
            raise errors.TimedOut(
                f"{name}: not all ranks answered in {timeout:g} s: {error}", f"to {what}"
            ) from error
        except Exception as error:
            raise _broken(name, what, error) from error
        for answer in answers:
            if "error" in answer:
                raise _error_of(name, what, answer)
        if not answers:
            raise errors.Error(f"{name} has no ranks that could {what}", "is it up?")
        return answers


def _broken(name: str, what: str, error: Exception) -> errors.Error:
    """vLLM's own errors have no common class."""
    text = f"{type(error).__name__}: {error}"
    if "gpuwm_" in text or isinstance(error, (AttributeError, NotImplementedError)):
        return errors.Unsupported(
            f"the ranks of {name} can't {what}: {text}",
            "start it with --worker-extension-cls gpuwm.vllm.Extension",
        )
    return errors.Error(f"{name} could not {what}: {text}", "see the engine's log")


def _error_of(name: str, what: str, answer: dict[str, Any]) -> errors.Error:
    kind = getattr(errors, answer["error"], errors.Error)
    if not (isinstance(kind, type) and issubclass(kind, errors.Error)):
        kind = errors.Error
    said = answer["message"]
    if kind is errors.Error:
        said = f"{answer['error']}: {said}"
    return kind(f"{name}, rank {answer['rank']}, could not {what}: {said}", answer["detail"])


def _same(what: str, ranks: Answers) -> None:
    found = {rank["id"]: rank["version"] for rank in ranks}
    if len(found) > 1:
        raise errors.Mismatch(
            f"the ranks would be on {len(found)} versions {what}: {', '.join(found)}",
            "switch again: an alias moved meanwhile",
        )
