"""The connector's half in a worker: it copies blocks between the rank's KV cache and its region.

All copies are in the stream in which vLLM computes, so they are in order with the steps: loads come
before the step that needs them, puts after the step that computed them and before the next one,
which may overwrite. Nothing here waits for the GPU, for gpuwmd, or for other processes.

Loads find what they are to load, because the scheduler's half holds it. If they do not, a block
that was promised is missing, and vLLM has to compute the request again (`Unrecovered` where it
can't).

This module does not import vLLM.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from ... import errors
from . import chain
from .copier import Copier
from .failures import Failures
from .layout import Layout
from .messages import Rank, Report, Step
from .page import Page

log: logging.Logger = logging.getLogger("vllm.gpuwm")
_FIGURES_S = 60.0  # between two lines of the log


class Unrecovered(errors.Error):
    """A block that the scheduler counted on could not be loaded, and vLLM would compute wrong
    tokens."""


class Working:
    """One rank's half. index: of the rank among all of the engine. recovers: whether vLLM computes
    a request again whose load failed."""

    def __init__(self, index: int, recovers: bool) -> None:
        self._index, self._recovers = index, recovers
        self._failures = Failures(f"rank {index}")
        self._figures = _Figures(index)
        self._page = Page()
        self._fields: dict[str, str] = {}
        self._weights: Callable[[], str] = str
        self._identity = b""
        self._region: Any = None
        self._copier: Copier | None = None
        self._rank: Rank | None = None
        self._step: Step | None = None
        self._failed_step = 0  # the newest step in which a load failed
        self._invalid: set[int] = set()

    def register(
        self,
        layout: Layout,
        fields: Mapping[str, str],
        weights: Callable[[], str],
        name: str,
        region: Any,
    ) -> None:
        """The worker has its KV cache.

        - fields: what KV depends on besides weights, tokens and the layout.
        - weights: returns a text that is equal for equal weights only.
        - name: of the region. region: gpuwm.Blocks, or what looks like it.
        """
        self._fields = {**fields, "layout": layout.described}
        self._weights, self._region = weights, region
        self._copier = Copier(layout, region.tensor())
        self._rank = Rank(name, layout.block_bytes, self._page.path)
        self.weights_changed()
        log.info(
            "gpuwm: KV of rank %d is shared in the region %s: blocks of %d bytes in %d pieces; "
            "digest %s, of weights (%s) and settings %s",
            self._index,
            name,
            layout.block_bytes,
            len(layout.segments),
            self._identity.hex()[:12],
            self._weights(),
            chain.fields_digest(self._fields).hex()[:12],
        )
        log.debug("gpuwm: it depends on %s", self._fields)

    @property
    def rank(self) -> Rank | None:
        """For the scheduler's half, once `register` was called."""
        return self._rank

    def weights_changed(self) -> None:
        """Tells the scheduler's half what the rank's KV is computed with from now on. Call it
        before the engine goes on. If it raises, the rank neither puts nor gets."""
        self._identity = b""
        self._page.clear()
        self._identity = chain.fields_digest({**self._fields, "weights": self._weights()})
        self._page.write(self._identity)

    # ---- a step ----

    def begin(self, step: Step | None) -> None:
        """The next step."""
        self._step, self._invalid = step, set()

    def load(self) -> None:
        """Loads what the step needs. Raises Unrecovered."""
        step = self._step
        if step is None or not step.loads.blocks:
            return
        blocks = step.loads.blocks
        found = 0
        try:
            found = self._get(step)
        except errors.Error as error:
            self._failures.tell("load blocks", error)
        self._figures.add(loaded=found)
        if found == len(blocks):
            return
        self._failed_step = step.number
        self._invalid = set(blocks[found:])
        if not self._recovers:
            raise Unrecovered(
                f"rank {self._index} could load {found} of the {len(blocks)} blocks that the "
                "scheduler's half holds for this step, and vLLM would compute wrong tokens now "
                "(vllm-project/vllm issue 49250)",
                "the log says why the rank could not; start the engine again",
            )

    def _get(self, step: Step) -> int:
        copier = self._copier
        if copier is None or copier.is_captured() or not self._is_of_now(step):
            return 0
        held = self._region.hold(bytes(step.loads.keys))
        found = len(held.numbers)
        if found:
            copier.get(step.loads.blocks[:found], held.numbers)
        held.release(copier.behind())
        return found

    def save(self) -> None:
        """Puts what the step has computed. It raises nothing of gpuwm's."""
        step = self._step
        if step is None or not step.saves.blocks:
            return
        # After a load that failed, requests may have KV that was not there, until the scheduler's
        # half has heard of it and no longer names what they compute.
        if self._failed_step > step.settled or not self._is_of_now(step):
            return
        try:
            self._put(step)
        except errors.Error as error:
            self._failures.tell("put blocks", error)

    def _put(self, step: Step) -> None:
        copier, wanted = self._copier, step.saves.blocks
        if copier is None or copier.is_captured():
            return
        reserved = self._region.reserve(bytes(step.saves.keys))
        pairs = [
            (block, number)
            for block, number in zip(wanted, reserved.numbers, strict=False)
            if number is not None
        ]
        self._figures.add(put=len(pairs), refused=len(wanted) - len(reserved.numbers))
        if not pairs:
            reserved.abandon()
            return
        copier.put([block for block, _ in pairs], [number for _, number in pairs])
        reserved.publish(copier.behind())

    def _is_of_now(self, step: Step) -> bool:
        """Whether the keys of the step were computed for the weights that the rank is on."""
        return step.identities[self._index : self._index + 1] == (self._identity,)

    def invalid(self) -> set[int]:
        """vLLM's blocks that the step was to load, and whose bytes are not there."""
        return self._invalid

    def report(self) -> Report | None:
        """The step's outcome, for the scheduler's half."""
        step = self._step
        if step is None:
            return None
        self._figures.log()
        return Report(step.number, bool(self._invalid))

    def close(self) -> None:
        """Raises nothing."""
        self._copier = None
        self._page.close()
        try:
            if self._region is not None:
                self._region.close()
        except errors.Error as error:
            log.debug("gpuwm: %s", error)  # the region is closed when the process ends
        self._region = None


class _Figures:
    """What a rank has copied, in a line of the log a minute."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._counts = {"put": 0, "loaded": 0, "refused": 0}
        self._next = time.monotonic() + _FIGURES_S

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self._counts[name] += count

    def log(self) -> None:
        now = time.monotonic()
        if now < self._next or not any(self._counts.values()):
            return
        log.info(
            "gpuwm: rank %d put %d blocks of KV, loaded %d, and found no room for %d",
            self._index,
            self._counts["put"],
            self._counts["loaded"],
            self._counts["refused"],
        )
        self._counts = dict.fromkeys(self._counts, 0)
        self._next = now + _FIGURES_S
