"""Makes a running engine follow an alias: whenever the alias moves, the engine is switched.

python -m gpuwm.vllm follow http://localhost:8000 llama@prod
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from .. import _client as clients
from .. import _connection, errors
from .._c.events import Event, Events
from ._switch import StillPaused, Switched, switch
from .targets import KEEP

log: logging.Logger = logging.getLogger("vllm.gpuwm")
# The pause after a failure that may pass: short compared with the start of an engine, long compared
# with a switch.
RETRY_S = 5.0
# Errors that may not come again.
_MAY_PASS = (
    *(errors.Unreachable, errors.TimedOut, errors.Busy, errors.Disconnected),
    *(errors.Draining, errors.Quota),
)


def follow(
    target: Any,
    ref: str,
    *,
    mode: str = KEEP,
    verify: bool = True,
    drain: float | None = None,
    client: clients.Client | None = None,
    on_switch: Callable[[Switched], None] = lambda switched: None,
) -> None:
    """Switches to what `ref` names now, and again whenever its alias moves. It blocks.

    - target, mode, verify, drain: as in `gpuwm.vllm.switch`.
    - ref: "llama@prod"; "llama" means "llama@current".
    - on_switch: called after each switch.

    If the engine refuses a version (Mismatch, Damaged, NotFound…), that is logged, and the engine
    keeps its version until the alias moves again. If an error may pass (nobody answers, another
    switch has not ended), it tries again every RETRY_S; so it does while gpuwmd is away, or if
    `follow` left the engine paused. Raises Lost, Cancelled and Invalid.
    """
    model, _, alias = ref.partition("@")
    alias = alias or "current"
    events: Events | None = None
    due = 0.0  # when to switch next, in time.monotonic
    paused = False  # a switch of this call paused the engine and could not resume it
    try:
        while True:
            try:
                events = events or (client or _connection.shared()).events().open()
                if time.monotonic() >= due:
                    failed = _try(target, ref, mode, verify, drain, paused, on_switch)
                    # It stays paused until a switch succeeds: each switch that takes over resumes
                    # the engine.
                    paused = failed is not None and (paused or isinstance(failed, StillPaused))
                    again = paused or isinstance(failed, _MAY_PASS)
                    due = time.monotonic() + RETRY_S if again else math.inf
                event = events.next(max(due - time.monotonic(), 0.0))
                if event is not None and _concerns(event, model, alias):
                    # opened before it looks where the alias is, so that no move is missed
                    events.open()
                    due = 0.0
            except (errors.Unreachable, errors.Disconnected) as error:
                log.warning("gpuwm: no gpuwmd, trying again every %g s: %s", RETRY_S, error)
                time.sleep(RETRY_S)
    finally:
        if events is not None:
            events.close()


def _try(
    target: Any,
    ref: str,
    mode: str,
    verify: bool,
    drain: float | None,
    paused: bool,
    on_switch: Callable[[Switched], None],
) -> errors.Error | None:
    """Tries to switch. Returns the error, or None. paused: an earlier switch left the engine
    paused."""
    try:
        switched = switch(target, ref, mode=mode, verify=verify, drain=drain, take_over=paused)
    except (errors.Lost, errors.Cancelled, errors.Invalid):
        raise
    except StillPaused as error:
        log.warning("gpuwm: %s", error)
        return error
    except errors.Error as error:
        log.warning("gpuwm: %s keeps its version: %s", target, error)
        return error
    on_switch(switched)
    return None


def _concerns(event: Event, model: str, alias: str) -> bool:
    """Whether the alias may name another version now. After "lost" and "disconnected" it may have
    moved unseen: a gpuwmd that has lost its state numbers its events anew."""
    if event.kind == "swapped":
        return (event.model, event.alias) == (model, alias)
    return event.kind in ("lost", "disconnected")
