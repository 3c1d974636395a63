"""The KV connector in vLLM's own engine and scheduler, with a model whose KV can be checked."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kv_blocks import Blocks, Memory

import gpuwm

from .conftest import NEW
from .kv_asking import ROOM, Engine, forget_vllm
from .kv_steps import ALL, BLOCK, COUNT, PROMPT, REST, expected

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # vLLM's imports warn
    pytest.mark.skipif(NEW, reason="vLLM's interface for connectors changes"),
]


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> dict[str, Memory]:
    """The regions by name, which all engines of a test share."""
    from gpuwm.vllm.kv import regions

    made: dict[str, Memory] = {}

    def of_worker(settings: Any, rank: int, block_bytes: int, device: str) -> Blocks:
        name = settings.region_of(rank)
        if name not in made:
            made[name] = Memory(settings.blocks_of(block_bytes), block_bytes)
        if made[name].block_bytes != block_bytes:
            raise gpuwm.Mismatch(f"the region {name} has blocks of another size")
        return Blocks(made[name])

    monkeypatch.setattr(regions, "of_worker", of_worker)
    monkeypatch.setattr(regions, "of_scheduler", lambda settings, name: Blocks(made[name]))
    return made


Start = Callable[..., Engine]


@pytest.fixture
def start(
    checkpoints: pathlib.Path, memories: dict[str, Memory], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    started = []

    def starting(role: str = "kv_both", worker: str = "Worker", **arguments: Any) -> Engine:
        started.append(Engine(checkpoints / "dense", worker, role, **arguments))
        return started[-1]

    yield starting
    for engine in started:
        engine.end()
    forget_vllm()
    for memory in memories.values():
        assert not any(slot.holds for slot in memory.slots)


def test_one_engine_puts_and_another_gets(start: Start) -> None:
    prefill, decode = start("kv_producer"), start("kv_consumer")
    assert prefill.computed(PROMPT) == ALL
    assert decode.computed(PROMPT) == REST


def test_the_model_of_these_tests_sees_a_wrong_byte_in_any_block(
    start: Start, memories: dict[str, Memory]
) -> None:
    first, second = start(), start()
    first.computed(PROMPT)
    memories["kv-r0"].bytes[0, 3] ^= 1
    with pytest.raises(AssertionError, match="torn"):
        second.ask(PROMPT)


def test_any_engine_finds_the_prefix_that_another_has_computed(start: Start) -> None:
    first, second = start(), start()
    first.computed(PROMPT)
    other = PROMPT[: 3 * BLOCK + 5] + [8] * 40
    assert second.computed(other) == len(other) + COUNT - 1 - 3 * BLOCK
    # And the first finds what the second has added, and what it has lost itself.
    first.forget()
    assert first.computed(other) == COUNT - 1 + len(other) - (len(other) - 1) // BLOCK * BLOCK


def test_an_engine_that_has_slept_goes_on(start: Start) -> None:
    """As vLLM 0.33 tells it. The cache has its addresses again, and nothing of its content."""
    engine = start()
    connector: Any = engine.rank.connector.kv_connector
    assert type(connector).supports_sleep_mode(None)
    assert engine.computed(PROMPT) == ALL
    for _ in range(2):
        connector.unregister_kv_caches()
    for cache in engine.rank.caches.values():
        cache.zero_()
    engine.forget()
    for _ in range(2):
        connector.restore_kv_caches()
    assert engine.computed(PROMPT) == REST


def test_what_vllm_has_itself_is_not_loaded(start: Start) -> None:
    engine = start()
    engine.computed(PROMPT)
    assert engine.computed(PROMPT) == REST
    assert not any(engine.rank.loads)


def test_vllm_s_own_prefix_and_more_blocks_of_the_region(start: Start) -> None:
    first, second = start(), start()
    second.computed(PROMPT[: 2 * BLOCK + 1])
    first.computed(PROMPT)
    assert second.computed(PROMPT) == REST
    assert sum(second.rank.loads) == 2


def test_blocks_of_an_answer_are_found(start: Start) -> None:
    first, second = start(), start()
    count = 3 * BLOCK
    first.computed(PROMPT, count=count)
    longer = PROMPT + expected(PROMPT, count, "v1")
    assert second.computed(longer) == len(longer) + COUNT - 1 - (len(longer) - 1) // BLOCK * BLOCK


def test_a_prompt_of_whole_blocks_leaves_a_block_to_compute(start: Start) -> None:
    first, second = start(), start()
    prompt = PROMPT[: 2 * BLOCK]
    first.computed(prompt)
    assert second.computed(prompt) == BLOCK + COUNT - 1


def test_short_prompts_have_no_block(start: Start, memories: dict[str, Memory]) -> None:
    engine = start()
    engine.computed(PROMPT[: BLOCK - COUNT])
    assert Blocks(memories["kv-r0"]).ready() == 0


def test_chunks_of_a_prompt_are_put_as_they_are_computed(
    start: Start, memories: dict[str, Memory]
) -> None:
    first, second = start(max_num_batched_tokens=24), start(max_num_batched_tokens=24)
    assert first.computed(PROMPT) == ALL
    assert second.computed(PROMPT) == REST
    assert Blocks(memories["kv-r0"]).ready() == len(PROMPT) // BLOCK


def test_many_requests_at_once(start: Start) -> None:
    first, second = start(), start()
    prompts = [PROMPT[: 20 + 7 * number] + [number] * 20 for number in range(8)]
    first.computed(*prompts)
    second.computed(*prompts)
    assert sum(second.rank.loads) > 0


@pytest.mark.parametrize("shares", [True, False])
def test_requests_that_are_preempted_go_on_right(start: Start, shares: bool) -> None:
    """There are too few blocks of vLLM's for all answers at once."""
    few = {"num_gpu_blocks_override": 14, "max_model_len": 128, "enable_prefix_caching": shares}
    first, second = start(**few), start(**few)
    prompts = [[number, *PROMPT[:40]] for number in range(4)]
    for engine in (first, second):
        engine.computed(*prompts, count=40)
        assert engine.rank.resumed


def test_roles(start: Start, memories: dict[str, Memory]) -> None:
    consumer, producer = start("kv_consumer"), start("kv_producer")
    assert consumer.computed(PROMPT) == ALL
    assert Blocks(memories["kv-r0"]).ready() == 0
    assert producer.computed(PROMPT) == ALL
    producer.forget()
    assert producer.computed(PROMPT) == ALL  # it puts, and does not get
    consumer.forget()
    assert consumer.computed(PROMPT) == REST


@pytest.mark.parametrize(
    ("changed", "blocks"),
    [
        ({"worker": "OtherWeights"}, 5),
        ({"worker": "SmallerBlocks"}, 10),
        ({"worker": "OtherType", "kv_cache_dtype": "bfloat16"}, 2),
    ],
    ids=["version", "block size", "dtype"],
)
def test_engines_that_differ_never_match(
    start: Start, memories: dict[str, Memory], changed: dict[str, Any], blocks: int
) -> None:
    start().computed(PROMPT)
    assert start(**changed).computed(PROMPT) == ALL
    assert Blocks(memories["kv-r0"]).ready() == 5 + blocks


def test_blocks_of_another_size_need_another_region(start: Start) -> None:
    start().computed(PROMPT)
    with pytest.raises(gpuwm.Mismatch, match="another size"):
        start(worker="LargerBlocks")


def test_weights_of_the_same_content_match(start: Start) -> None:
    """Such as a version that was published again."""
    start(worker="SameWeights").computed(PROMPT)
    assert start().computed(PROMPT) == REST


def test_a_cache_salt_separates(start: Start) -> None:
    first, second = start(), start()
    first.computed(PROMPT, cache_salt="a")
    assert second.computed(PROMPT, cache_salt="b") == ALL
    assert second.computed(PROMPT) == ALL
    second.forget()
    assert second.computed(PROMPT, cache_salt="a") == REST


def test_keys_that_collide_are_a_miss(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each digest the half by which blocks are found is the same."""
    from gpuwm.vllm.kv import chain

    real = chain.block_digest
    monkeypatch.setattr(chain, "block_digest", lambda data: bytes(16) + real(data)[16:])
    first, second = start(), start()
    first.computed(PROMPT)
    other = [7] * len(PROMPT)
    assert second.computed(other) == ALL


# ---- a switch of weights ----


def test_a_switch_between_put_and_get_is_a_miss(start: Start) -> None:
    first, second = start(), start()
    first.computed(PROMPT)
    second.switch("v2")
    assert second.computed(PROMPT) == ALL
    second.switch("v1")
    assert second.computed(PROMPT) == REST  # what `first` has put
    second.switch("v2")
    assert second.computed(PROMPT) == REST  # what it has put itself
    first.switch("v2")
    assert first.computed(PROMPT) == REST


def test_a_switch_while_requests_are_in_flight(start: Start) -> None:
    """They go on with the new weights: their KV is computed anew, and what is put is of the new
    weights only."""
    first, second = start(), start()
    first.begin(PROMPT, count=60)
    for _ in range(20):
        first.llm.llm_engine.step()
    first.switch("v2")
    while first.llm.llm_engine.has_unfinished_requests():
        first.llm.llm_engine.step()
    second.switch("v2")
    assert second.computed(PROMPT) == REST
    second.switch("v1")
    assert second.computed(PROMPT) == REST


def test_weights_that_change_without_a_reset_stop_sharing(
    start: Start, memories: dict[str, Memory]
) -> None:
    """vLLM still has KV of the old weights, on which new KV would depend."""
    first, second = start(), start()
    first.computed(PROMPT)
    ready = Blocks(memories["kv-r0"]).ready()
    first.rank.move("v2")
    first.ask(PROMPT + [1] * 40)
    assert Blocks(memories["kv-r0"]).ready() == ready
    first.rank.move("v1")  # there is KV of v2 now
    first.ask(PROMPT + [1] * 40)
    assert Blocks(memories["kv-r0"]).ready() == ready
    first.reset()
    assert first.computed(PROMPT) == REST
    second.computed(PROMPT)


def test_a_reset_long_before_weights_change_does_not_count(
    start: Start, memories: dict[str, Memory]
) -> None:
    engine = start()
    engine.reset()
    engine.computed(PROMPT)
    ready = Blocks(memories["kv-r0"]).ready()
    engine.rank.move("v2")
    engine.ask(PROMPT + [1] * 40)
    assert Blocks(memories["kv-r0"]).ready() == ready


# ---- a region that is full, gone, or held ----


def test_a_region_full_of_held_blocks(start: Start, memories: dict[str, Memory]) -> None:
    engine = start(options={"blocks": 4})
    engine.computed(PROMPT)
    memory = memories["kv-r0"]
    held = Blocks(memory).hold(b"".join(slot.key for slot in memory.slots))
    assert len(held.numbers) == 4
    other = [7] * len(PROMPT)
    assert engine.computed(other) == ALL
    held.release()
    engine.forget()
    assert engine.computed(other) == ALL
    engine.forget()
    assert engine.computed(other) < ALL  # now there was room


def test_the_last_blocks_of_a_request_make_room_first(
    start: Start, memories: dict[str, Memory]
) -> None:
    """Though they were put last: the prompt came in chunks."""
    engine = start(max_num_batched_tokens=16, options={"blocks": 5})
    engine.computed(PROMPT)
    others = Blocks(memories["kv-r0"]).reserve(b"x" * 24 + b"y" * 24)
    others.abandon()
    engine.forget()
    assert engine.computed(PROMPT) == ALL - 3 * BLOCK


def test_a_block_that_was_promised_can_not_be_evicted(
    start: Start, memories: dict[str, Memory]
) -> None:
    """Another engine fills the region between schedule and load."""
    first, second = start(), start(worker="Evicting", options={"blocks": ROOM})
    first.computed(PROMPT)
    second.rank.memory = memories["kv-r0"]
    assert second.computed(PROMPT) == REST
    assert sum(second.rank.loads) == 4


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_a_promised_block_that_is_gone_all_the_same(
    start: Start, memories: dict[str, Memory], policy: str
) -> None:
    """By a defect of gpuwm's, for example: nothing wrong is answered, and nothing wrong is put."""
    first, second = start(), start(worker="Losing", policy=policy)
    first.computed(PROMPT)
    second.rank.memory = memories["kv-r0"]
    other = PROMPT[:40] + [8] * 40
    if policy == "recompute":
        second.computed(PROMPT, other)
    else:
        assert second.ask(PROMPT)[0] == []
    first.forget()
    first.computed(PROMPT, other)
    second.computed(PROMPT, other)


def test_where_vllm_can_not_recover_the_engine_stops(
    start: Start, memories: dict[str, Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm.kv import engine as reading
    from gpuwm.vllm.kv.worker import Unrecovered

    monkeypatch.setattr(reading, "recovers", lambda config: False)
    first, second = start(), start(worker="Losing")
    first.computed(PROMPT)
    second.rank.memory = memories["kv-r0"]
    with pytest.raises(Unrecovered, match="issue 49250"):
        second.ask(PROMPT)


def test_an_engine_goes_on_when_the_region_has_ended(
    start: Start, memories: dict[str, Memory]
) -> None:
    engine = start()
    engine.computed(PROMPT)
    memories["kv-r0"].down = True
    engine.forget()
    assert engine.computed(PROMPT) == ALL


# ---- what it starts with ----


@pytest.mark.parametrize("worker", ["Unmanaged", "Private"])
def test_weights_that_nothing_names_are_refused(start: Start, worker: str) -> None:
    with pytest.raises(gpuwm.Unsupported, match="identity"):
        start(worker=worker)


def test_weights_that_the_user_names(start: Start) -> None:
    named = {"worker": "Unmanaged", "options": {"identity": "llama of May"}}
    start(**named).computed(PROMPT)
    assert start(**named).computed(PROMPT) == REST
    assert start().computed(PROMPT) == ALL
    other = {"worker": "Unmanaged", "options": {"identity": "llama of June"}}
    assert start(**other).computed(PROMPT) == ALL


def test_vllm_knows_the_connector_by_name() -> None:
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.distributed.kv_transfer.kv_connector.v1 import supports_hma

    import gpuwm.vllm
    from gpuwm.vllm.kv import GpuwmConnector

    gpuwm.vllm.register()
    assert KVConnectorFactory.get_connector_class_by_name("GpuwmConnector") is GpuwmConnector
    assert not supports_hma(GpuwmConnector)


def test_how_pictures_are_prepared_is_part_of_every_key() -> None:
    """Such as --mm-processor-kwargs, which vLLM's digest of a picture does not cover."""
    from gpuwm.vllm.kv import engine

    def media(arguments: Any) -> str:
        pictures = types.SimpleNamespace(mm_processor_kwargs=arguments)
        return engine.media(types.SimpleNamespace(multimodal_config=pictures))

    plain = engine.media(types.SimpleNamespace(multimodal_config=None))
    assert plain == media(None) == media({})
    assert len({plain, media({"do_normalize": False}), media({"do_normalize": True})}) == 3


# ---- asynchronous scheduling: the tokens of the step before are not known yet ----


def test_asynchronous_scheduling(start: Start) -> None:
    first, second = start(async_scheduling=True), start(async_scheduling=True)
    count = 3 * BLOCK
    prompts = [[number, *PROMPT] for number in range(4)]
    first.computed(*prompts, count=count)
    longer = [prompt + expected(prompt, count, "v1") for prompt in prompts]
    second.computed(*longer)
    # The last block of an answer is full when the request ends, and may not be put.
    assert second.ask_rank("blocks_loaded") >= sum(len(each) // BLOCK - 1 for each in longer)
    first.switch("v2")
    assert first.computed(PROMPT) == ALL
    first.forget()
    assert first.computed(PROMPT) == REST
