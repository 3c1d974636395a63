"""The connector's half in vLLM's scheduler: what a request can get, and what it puts.

A request that is new, or comes back after a preemption, asks for the blocks after those that vLLM
has itself. `matched` holds what the regions of all ranks have of them, so nobody can evict them
before the workers have copied them. The hold ends with the step. That matters: if a promised block
were gone when a worker wants to load it, vLLM would have to take the request back, and 0.25.1
computes wrong tokens then (vllm-project/vllm issue 49250).

What a step has computed is put after it: each full block whose tokens are known and whose KV is
final. With asynchronous scheduling a generated token is known a step later, so the last block of an
answer may not be put.

Errors of gpuwm are misses. None of them reaches the scheduler.

This module does not import vLLM.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import errors
from . import chain
from .failures import Failures
from .messages import Rank, Report, Step
from .settings import Settings
from .weights import Weights

_AGAIN_S = 60.0  # between two tries to open the regions: each asks gpuwmd


@dataclass
class _Request:
    """A request that the scheduler has. request: vLLM's. chain: None if its KV is not shared.
    blocks: vLLM's numbers. put: how many of its blocks the workers were told to put."""

    request: Any
    chain: chain.Chain | None
    blocks: list[int] = field(default_factory=list)
    put: int = 0


@dataclass
class _Load:
    """Blocks that `matched` promised to a request, from `begin` to before `end`. holds: one in the
    region of each rank. taken: whether the request is in the step."""

    begin: int
    end: int
    holds: list[Any]
    taken: bool = False

    def release(self) -> None:
        while self.holds:
            self.holds.pop().release()


class Scheduling:
    """open_region: opens the region of a rank, to look keys up and to hold blocks."""

    def __init__(
        self, settings: Settings, block_size: int, open_region: Callable[[Rank], Any]
    ) -> None:
        self._settings, self._size, self._open = settings, block_size, open_region
        self._failures = Failures("scheduler")
        self._ranks: list[Rank] = []
        self._regions: list[Any] | None = None  # opened when they are first needed
        self._try_again = 0.0
        self._weights = Weights([], self._failures)
        self._requests: dict[str, _Request] = {}
        self._loads: dict[str, _Load] = {}  # of the step that is being scheduled
        self._held: dict[int, list[_Load]] = {}  # by the number of the step that loads them
        self._step = self._settled = 0

    def set_ranks(self, ranks: Mapping[tuple[int, int], Rank]) -> None:
        """ranks: by their position in pipeline and tensor parallelism. vLLM calls it once, when all
        workers have their caches."""
        self._ranks = [ranks[at] for at in sorted(ranks)]
        self._weights = Weights([rank.page for rank in self._ranks], self._failures)
        try:
            self._opened()
        except errors.Error as error:
            self._failures.tell("open the regions", error)

    # ---- what a request can get ----

    def matched(self, request: Any, computed: int) -> int:
        """How many tokens after the first `computed` ones the workers can load. vLLM may call it
        again for the same request."""
        self._release(self._loads.pop(request.request_id, None))
        state = self._state(request)
        if (
            not self._settings.gets
            or state.chain is None
            or computed % self._size
            or request.skip_reading_prefix_cache
        ):
            return 0
        # At least one token is computed: its logits give the next one.
        begin, end = computed // self._size, (request.num_tokens - 1) // self._size
        if end <= begin:
            return 0
        state.chain.extend(request.all_token_ids, end)
        load = self._hold(state.chain, begin, end)
        if load is None:
            return 0
        self._loads[request.request_id] = load
        return (load.end - begin) * self._size

    def _hold(self, keys: chain.Chain, begin: int, end: int) -> _Load | None:
        """Holds the first blocks that the regions of all ranks have."""
        load = _Load(begin, end, [])
        try:
            for region in self._opened():
                load.holds.append(region.hold(keys.keys(begin, load.end)))
                load.end = begin + len(load.holds[-1].numbers)
                if load.end == begin:
                    break
        except errors.Error as error:
            self._failures.tell("look blocks up", error)
            load.end = begin
        if load.holds and load.end > begin:
            return load
        self._release(load)
        return None

    def allocated(self, request: Any, tokens: int) -> None:
        """vLLM has blocks for the request, and counts on `tokens` tokens that were matched."""
        self._state(request)
        load = self._loads.get(request.request_id)
        if load is not None and tokens > 0:
            load.taken = True

    def _state(self, request: Any) -> _Request:
        root = self._root()
        state = self._requests.get(request.request_id)
        if state is None:
            state = _Request(request, self._chain(request, root))
            self._requests[request.request_id] = state
        return state

    def _chain(self, request: Any, root: bytes | None) -> chain.Chain | None:
        extras = chain.extras_of(request, self._settings.lora == "name")
        if root is None or extras is None:
            return None
        return chain.Chain(root, self._size, extras)

    def _root(self) -> bytes | None:
        root, is_new = self._weights.root()
        if is_new:  # no request has KV: it was dropped before the weights changed
            for state in self._requests.values():
                state.chain = self._chain(state.request, root)
                state.blocks, state.put = [], 0
        return root

    # ---- a step ----

    def step(self, output: Any) -> Step:
        """Says what the workers copy. output: vLLM's SchedulerOutput."""
        self._step += 1
        step = Step(self._step, settled=self._settled)
        root = self._root()
        for request, blocks, is_whole in _tables(output):
            state = self._requests.get(request)
            if state is not None:
                if is_whole:
                    state.blocks = []
                state.blocks += blocks
                self._plan_load(step, state, self._loads.get(request))
        if root is not None and self._settings.puts:
            drafts = output.scheduled_spec_decode_tokens
            for request, tokens in output.num_scheduled_tokens.items():
                state = self._requests.get(request)
                if state is not None:
                    self._plan_save(step, state, tokens - len(drafts.get(request, ())))
        if step.loads.blocks or step.saves.blocks:
            step.identities = self._weights.identities
        if output.total_num_scheduled_tokens:
            self._weights.computed()
        self._end_schedule()
        return step

    def _plan_load(self, step: Step, state: _Request, load: _Load | None) -> None:
        if load is not None and load.taken:
            assert state.chain is not None
            keys = state.chain.keys(load.begin, load.end)
            step.loads.add(keys, state.blocks[load.begin : load.end])

    def _plan_save(self, step: Step, state: _Request, tokens: int) -> None:
        """tokens: how many the step computes for sure; guesses of speculation may be wrong."""
        request = state.request
        known = min(request.num_computed_tokens + tokens, request.num_tokens)
        end = min(known // self._size, len(state.blocks))
        if state.chain is None or end <= state.put:
            return
        state.chain.extend(request.all_token_ids, end)
        # Blocks that vLLM found in its own cache, or loads now, are named too: some may have been
        # evicted from the region. Those that are there cost a look.
        step.saves.add(state.chain.keys(state.put, end), state.blocks[state.put : end])
        state.put = end

    def _end_schedule(self) -> None:
        loads, self._loads = self._loads, {}
        for load in loads.values():
            if load.taken:
                self._held.setdefault(self._step, []).append(load)
            else:
                self._release(load)

    def reported(self, report: Report) -> None:
        """A step's outcome. The workers hold for themselves what they load in it."""
        for number in [each for each in self._held if each <= report.number]:
            for load in self._held.pop(number):
                self._release(load)
        self._settled = max(self._settled, report.number)
        if report.failed:
            # Requests of that step may go on with KV that was not there. What they compute is not
            # put, and neither is what others have computed with it in the meantime.
            for state in self._requests.values():
                state.chain = None

    def finished(self, request: Any) -> None:
        state = self._requests.pop(request.request_id, None)
        self._release(self._loads.pop(request.request_id, None))
        if state is None or state.chain is None or not state.put:
            return
        # The first blocks of the request were put first, so they would be evicted first, and the
        # others are no use without them. Blocks that are looked up together go from the end.
        try:
            for region in self._opened():
                region.find(state.chain.keys(0, state.put))
        except errors.Error as error:
            self._failures.tell("look blocks up", error)

    def reset(self, is_empty: bool) -> None:
        """vLLM was told to drop all KV. is_empty: whether it did, so that no request has any."""
        self._weights.dropped(is_empty)

    def close(self) -> None:
        """Raises nothing."""
        for loads in (list(self._loads.values()), *self._held.values()):
            for load in loads:
                self._release(load)
        self._loads, self._held = {}, {}
        self._weights.close()
        for region in self._regions or ():
            with contextlib.suppress(errors.Error):  # it is closed when the process ends
                region.close()
        self._regions = []

    # ---- gpuwm ----

    def _opened(self) -> list[Any]:
        """The regions of all ranks. Raises the errors of opening them, and tries again after a
        while."""
        if self._regions is None:
            now = time.monotonic()
            if now < self._try_again:
                return []
            self._try_again = now + _AGAIN_S
            self._regions = [self._open(rank) for rank in self._ranks]
        return self._regions

    def _release(self, load: _Load | None) -> None:
        try:
            if load is not None:
                load.release()
        except errors.Error as error:
            self._failures.tell("release blocks", error)


def _tables(output: Any) -> Iterator[tuple[str, list[int], bool]]:
    """Of each request whose table of blocks the step changes: its id, the blocks, and whether they
    are all blocks, or those at the end."""
    for new in output.scheduled_new_reqs:
        yield new.req_id, new.block_ids[0], True
    cached = output.scheduled_cached_reqs
    for request, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
        if blocks is not None:
            yield request, blocks[0], request in cached.resumed_req_ids
