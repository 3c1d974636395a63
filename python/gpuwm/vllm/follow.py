"""A running engine follows an alias: whenever it moves, the engine is switched.

python -m gpuwm.vllm follow http://localhost:8000 llama@prod
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from .. import client as clients
from .. import errors
from .._events import Event
from .switching import Switched, switch
from .targets import KEEP

log = logging.getLogger("gpuwm")
# After a failure that may pass: short beside the start of an engine, long beside a switch.
RETRY_S = 5.0
# What the next try may not meet.
_MAY_PASS = (errors.Unreachable, errors.TimedOut, errors.Busy, errors.Disconnected)


def follow(
    target: Any,
    ref: str,
    *,
    mode: str = KEEP,
    verify: bool = True,
    drain: float | None = None,
    client: clients.Client | None = None,
    told: Callable[[Switched], None] = lambda switched: None,
) -> None:
    """Switches to what `ref` names now, and again whenever its alias moves. Blocks.

    target, mode, verify, drain: of `gpuwm.vllm.switch`, from which all errors come. ref:
    "llama@prod"; "llama" means "llama@current". told: is called after each switch. What the engine
    refuses (Mismatch, Damaged, NotFound…) is logged, and the engine keeps its version until the
    alias moves again. What may pass (nobody answers, another switch came between) is tried again
    every RETRY_S, as is a gpuwmd that is away. Raises Lost and Invalid.
    """
    model, _, alias = ref.partition("@")
    alias = alias or "current"
    with clients.Client.events(client or clients.shared()) as events:
        due, wait = True, math.inf
        while True:
            if due:
                wait = RETRY_S if _try(target, ref, mode, verify, drain, told) else math.inf
            event = _next(events, wait)
            due = event is None or _concerns(event, model, alias)


def _try(
    target: Any,
    ref: str,
    mode: str,
    verify: bool,
    drain: float | None,
    told: Callable[[Switched], None],
) -> bool:
    """Whether to try again."""
    try:
        told(switch(target, ref, mode=mode, verify=verify, drain=drain))
    except (errors.Lost, errors.Invalid):
        raise
    except errors.Error as error:
        log.warning("gpuwm: %s keeps its version: %s", target, error)
        return isinstance(error, _MAY_PASS)
    return False


def _concerns(event: Event, model: str, alias: str) -> bool:
    """The alias may name another version now; "lost": it may have moved unseen."""
    if event.kind == "swapped":
        return (event.model, event.alias) == (model, alias)
    return event.kind == "lost"


def _next(events: Any, wait: float) -> Event | None:
    """None: nothing came within `wait` seconds."""
    while True:
        try:
            found: Event | None = events.next(wait)
            return found
        except (errors.Unreachable, errors.Disconnected) as error:
            log.warning("gpuwm: no gpuwmd: %s", error)
            time.sleep(RETRY_S)
