"""Elects the engine that builds a version, with all of its ranks. All other engines wait for it."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator

from .. import _election, errors
from .._attach import attach
from .._mapping import Mapping as Attached
from .engine import Engine

# How often rank 0 tells the other ranks that it still waits for another engine: a collective
# operation of torch.distributed fails if nothing comes for half an hour. The log gets a line too.
WAITING_SECONDS = 60.0
# A wait that is nearly over stays a wait: a call without one may take 30 seconds.
LEAST_SECONDS = 0.001

ATTACH, BUILD, WAIT, FAILED = "attach", "build", "wait", "failed"
Verdict = tuple[str, str]


def find(engine: Engine) -> Attached | None:
    """Returns this rank's part of the version, mapped, after its key was compared. Returns None if
    this engine is the one that builds the version, and has the claim. Collective: all ranks attach,
    or all build, or all raise.

    Raises NotFound (mode load, and the version is not there), Exists (mode save, and it is there),
    TimedOut (it names who builds the version), Mismatch (it names the field in which the keys
    differ), Refused, or Damaged (a tainted version).
    """
    mapping: Attached | None = None

    def keep(found: Attached | None) -> Attached | None:
        nonlocal mapping
        mapping = found
        return found

    error: Exception | None = None
    what, text = FAILED, ""
    try:
        what, text = _decided_by_first(engine, functools.partial(_decide, engine, keep))
        if what == BUILD:
            return None
        if what == ATTACH and mapping is None:
            mapping = attach(
                text, rank=engine.ranks.rank, device=engine.device, client=engine.client
            )
            engine.check(mapping)
    except Exception as failed:
        error = failed
    engine.ranks.agree(f"attach to {engine.name}", error)
    assert mapping is not None
    return mapping


def _decided_by_first(engine: Engine, decide: Callable[[], Iterator[Verdict]]) -> Verdict:
    """Returns what rank 0 decided. Rank 0 raises what `decide` raises, after all ranks were
    told."""
    ranks = engine.ranks
    if ranks.rank == 0:
        try:
            for verdict in decide():
                ranks.first(verdict)
        except Exception as error:
            ranks.first((FAILED, f"{type(error).__name__}: {error}"))
            raise
        return verdict
    while (verdict := ranks.first())[0] == WAIT:
        pass
    return verdict


def _decide(engine: Engine, keep: Callable[[Attached | None], object]) -> Iterator[Verdict]:
    """Runs on rank 0. Yields WAIT any number of times, then ATTACH with the version's id, or
    BUILD."""
    settings = engine.settings
    find_one = {"load": _attach, "save": _claim_new}.get(settings.mode, _claim)
    default = 0.0 if settings.mode in ("load", "save") else math.inf
    wait = default if settings.wait is None or settings.mode == "save" else settings.wait
    end = time.monotonic() + wait
    while True:
        left = max(end - time.monotonic(), LEAST_SECONDS if wait else 0.0)
        try:
            found = find_one(engine, min(left, WAITING_SECONDS))
        except errors.TimedOut as error:
            if left <= WAITING_SECONDS:
                raise
            engine.log.info("gpuwm: still waiting for %s: %s", engine.name, error)
            yield WAIT, str(error)
            continue
        if found is None:
            yield BUILD, engine.name
        else:
            # now, since the other ranks look for parts next, which a wrong version may not have
            engine.check(found)
            keep(found)
            yield ATTACH, found.version.id
        return


def _attach(engine: Engine, wait: float) -> Attached:
    try:
        return attach(
            engine.name,
            device=engine.device,
            wait=wait,
            owner=engine.settings.owners,
            client=engine.client,
        )
    except errors.NotFound as error:
        raise errors.NotFound(
            f'"mode": "load": {error}',
            'let an engine build it first ("mode": "auto"), or correct "ref"',
        ) from error


def _claim(engine: Engine, wait: float) -> Attached | None:
    """Attaches, or waits for the builder, or is elected."""
    owner = engine.settings.owners
    try:
        return _election.claim(engine.client, engine.name, engine.device, wait, None, owner)
    except errors.Exists:  # an alias can't name a new version, but it leads to a ready one
        return attach(
            engine.name, device=engine.device, wait=wait, owner=owner, client=engine.client
        )
    except errors.NoDevice as error:
        raise errors.NoDevice(
            error.message,
            f'{error.detail}; give this engine another "ref", or none: names that gpuwm derives '
            "differ by device",
        ) from error


def _claim_new(engine: Engine, wait: float) -> None:
    """Is elected, or raises why nobody can build this name now. wait: 0."""
    remedy = f'give another tag in "ref", or free the name first: gpuwmctl retire {engine.name}'
    try:
        found = _election.claim(engine.client, engine.name, engine.device, wait, None)
    except errors.TimedOut as error:
        raise errors.Busy(
            f'"mode": "save": another process is building {engine.name}: {error.message}',
            'give another tag in "ref", or let this engine use that one: "mode": "auto"',
        ) from error
    except (errors.Exists, errors.NoDevice) as error:
        raise errors.Exists(f'"mode": "save": {error.message}', remedy) from error
    if found is not None:
        found.drop()
        raise errors.Exists(f'"mode": "save": the version {engine.name} is there', remedy)


def give_up(engine: Engine) -> None:
    """Gives the claim up, so that the next engine gets it. Only rank 0 has a claim."""
    if engine.ranks.rank == 0:
        _election._give_up(engine.client, engine.name)
