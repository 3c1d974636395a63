"""The scheduler's half of the KV connector, with requests and steps as vLLM has them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest
from kv_blocks import Blocks, Memory, split

import gpuwm
from gpuwm.vllm.kv import chain
from gpuwm.vllm.kv.messages import Rank, Report, Step
from gpuwm.vllm.kv.page import Page
from gpuwm.vllm.kv.scheduler import Scheduling
from gpuwm.vllm.kv.settings import Settings

SIZE, RANKS = 4, 2
TOKENS = list(range(18))  # four blocks, and two tokens


def request(tokens: list[int] = TOKENS, name: str = "a", **changes: Any) -> Any:
    values: dict[str, Any] = {
        "request_id": name,
        "prompt_token_ids": tokens,
        "all_token_ids": list(tokens),
        "num_tokens": len(tokens),
        "num_computed_tokens": 0,
        "skip_reading_prefix_cache": False,
        "prompt_embeds": None,
        "resumable": False,
        "cache_salt": None,
        "lora_request": None,
        "mm_features": [],
    }
    return types.SimpleNamespace(**{**values, **changes})


class Half:
    """The scheduler's half, above two ranks."""

    def __init__(self, **settings: Any) -> None:
        self.pages = [Page() for _ in range(RANKS)]
        self.memories = {f"kv-r{rank}": Memory(8, 256) for rank in range(RANKS)}
        self.opens = 0
        self.half = Scheduling(Settings(**settings), SIZE, self._open)
        for rank, page in enumerate(self.pages):
            page.write(bytes([rank + 1]) * chain.KEY_BYTES)
        ranks = {(0, at): Rank(f"kv-r{at}", 256, page.path) for at, page in enumerate(self.pages)}
        self.half.set_ranks(ranks)

    def _open(self, rank: Rank) -> Blocks:
        self.opens += 1
        memory = self.memories[rank.region]
        if memory.down:
            raise gpuwm.NotFound(f"there is no {rank.region}")
        return Blocks(memory)

    def open_again(self) -> None:
        self.half._regions, self.half._try_again = None, 0.0

    def end(self) -> None:
        self.half.close()
        for page in self.pages:
            page.close()

    def holds(self) -> list[int]:
        return [Blocks(memory).holds() for memory in self.memories.values()]

    def put(self, step: Step, missing: int = 0) -> None:
        """As the workers do it. missing: how many blocks the second rank has no room for."""
        for memory, skipped in zip(self.memories.values(), (0, missing), strict=True):
            keys = bytes(step.saves.keys)
            Blocks(memory).reserve(keys[: len(keys) - skipped * chain.KEY_BYTES]).publish()

    def step(
        self, asked: Any, tokens: int, matched: int = 0, drafts: int = 0, new: bool = True
    ) -> Step:
        """Schedules so many tokens of a request, after those that were matched."""
        name, blocks = asked.request_id, list(range(10, 10 + -(-len(TOKENS) // SIZE)))
        if new:
            self.half.allocated(asked, matched)
            asked.num_computed_tokens += matched
        first = types.SimpleNamespace(req_id=name, block_ids=(blocks,))
        cached = types.SimpleNamespace(req_ids=[], new_block_ids=[], resumed_req_ids=set())
        output = types.SimpleNamespace(
            scheduled_new_reqs=[first] if new else [],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens={name: tokens},
            total_num_scheduled_tokens=tokens,
            scheduled_spec_decode_tokens={name: [0] * drafts} if drafts else {},
        )
        step = self.half.step(output)
        asked.num_computed_tokens += tokens
        return step


@pytest.fixture
def half() -> Iterator[Half]:
    made = Half()
    yield made
    made.end()
    assert made.holds() == [0, 0]


def is_put(half: Half, asked: Any | None = None) -> Step:
    """Another engine has computed all of the request."""
    asked = asked or request()
    half.half.matched(asked, 0)
    step = half.step(asked, len(TOKENS))
    half.put(step)
    half.half.reported(Report(step.number))
    half.half.finished(asked)
    return step


def test_full_blocks_are_put_with_the_identities_of_all_ranks(half: Half) -> None:
    step = is_put(half)
    assert step.saves.blocks == [10, 11, 12, 13]
    assert len(split(bytes(step.saves.keys))) == 4
    assert step.identities == (b"\1" * chain.KEY_BYTES, b"\2" * chain.KEY_BYTES)


def test_matched_blocks_are_held_until_the_step_is_done(half: Half) -> None:
    is_put(half)
    again = request(name="b")
    assert half.half.matched(again, 0) == 16
    step = half.step(again, 2, matched=16)
    assert (step.loads.blocks, half.holds()) == ([10, 11, 12, 13], [4, 4])
    half.half.reported(Report(step.number))
    assert half.holds() == [0, 0]


def test_one_token_at_least_is_computed(half: Half) -> None:
    is_put(half)
    assert half.half.matched(request(TOKENS[:16], "b"), 0) == 12
    assert half.half.matched(request(TOKENS[:17], "c"), 0) == 16
    half.half.finished(request(name="b"))
    half.half.finished(request(name="c"))


def test_blocks_that_vllm_has_itself_are_not_asked_for(half: Half) -> None:
    is_put(half)
    again = request(name="b")
    assert half.half.matched(again, 8) == 8
    assert half.half.matched(again, 16) == 0
    assert half.half.matched(again, 7) == 0  # a part of a block


def test_asking_twice_holds_once(half: Half) -> None:
    is_put(half)
    again = request(name="b")
    assert [half.half.matched(again, 0) for _ in range(3)] == [16] * 3
    assert half.holds() == [4, 4]
    half.half.finished(again)


def test_a_request_that_was_not_scheduled_holds_nothing(half: Half) -> None:
    is_put(half)
    assert half.half.matched(request(name="b"), 0) == 16
    half.step(request([1] * 8, "c"), 8)  # there was room for another request only
    assert half.holds() == [0, 0]


def test_what_one_rank_lacks_is_a_miss_for_all(half: Half) -> None:
    asked = request()
    half.half.matched(asked, 0)
    half.put(half.step(asked, len(TOKENS)), missing=1)
    again = request(name="b")
    assert half.half.matched(again, 0) == 12
    half.half.finished(again)


def test_guesses_of_speculation_are_not_put(half: Half) -> None:
    asked = request()
    half.half.matched(asked, 0)
    assert half.step(asked, 12, drafts=1).saves.blocks == [10, 11]
    asked.num_computed_tokens -= 1  # the guess was wrong
    assert half.step(asked, 1, new=False).saves.blocks == [12]


def test_tokens_that_are_not_known_yet_are_not_put(half: Half) -> None:
    """Asynchronous scheduling: the step before gives the token that this one computes."""
    asked = request(TOKENS[:15])
    half.half.matched(asked, 0)
    assert half.step(asked, 15).saves.blocks == [10, 11, 12]
    assert half.step(asked, 1, new=False).saves.blocks == []
    asked.all_token_ids += [15]
    asked.num_tokens += 1
    assert half.step(asked, 1, new=False).saves.blocks == [13]


@pytest.mark.parametrize(
    "changes",
    [{"skip_reading_prefix_cache": True}, {"prompt_embeds": object()}, {"cache_salt": "s"}],
)
def test_requests_that_find_nothing(half: Half, changes: dict[str, Any]) -> None:
    is_put(half)
    assert half.half.matched(request(name="b", **changes), 0) == 0


def test_after_a_failure_the_requests_of_that_time_share_nothing(half: Half) -> None:
    asked = request()
    half.half.matched(asked, 0)
    step = half.step(asked, 8)
    half.half.reported(Report(step.number, failed=True))
    assert half.step(asked, 8, new=False).saves.blocks == []
    assert half.half.matched(asked, 0) == 0
    later = half.step(request(name="b"), 8)
    assert (later.saves.blocks, later.settled) == ([10, 11], step.number)


@pytest.mark.parametrize(
    ("role", "puts", "gets"),
    [({"gets": False}, [10, 11, 12, 13], 0), ({"puts": False}, [], 16)],
)
def test_roles(role: dict[str, bool], puts: list[int], gets: int) -> None:
    both, half = Half(), Half(**role)
    half.memories.update(both.memories)
    half.open_again()
    is_put(both)
    asked = request(name="b")
    assert half.half.matched(asked, 0) == gets
    assert half.step(asked, len(TOKENS)).saves.blocks == puts
    for each in (half, both):
        each.end()


def test_regions_that_are_not_there_are_asked_for_once_a_minute() -> None:
    half = Half()
    half.open_again()
    half.opens = 0
    half.memories["kv-r0"].down = True
    for number in range(5):
        assert half.half.matched(request(name=str(number)), 0) == 0
    assert half.opens == 1
    half.end()
