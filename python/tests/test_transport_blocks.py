"""gpuwm.Blocks in one process: what is reserved, published, found, held, dropped and evicted."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Daemon, asleep, eventually, on_host, once

import gpuwm

pytestmark = on_host
COUNT, BYTES = 8, 256
MISSING = b"m" * 24


def key(n: int) -> bytes:
    return hashlib.blake2b(str(n).encode(), digest_size=24).digest()


def keys(*numbers: int) -> bytes:
    return b"".join(key(n) for n in numbers)


@pytest.fixture
def blocks(daemon: Daemon) -> Iterator[gpuwm.Blocks]:
    with gpuwm.Blocks.create("cache", blocks=COUNT, block_bytes=BYTES) as made:
        yield made
        gc.collect()
    gpuwm.Blocks.remove("cache")


def fill(blocks: gpuwm.Blocks, *numbers: int) -> list[int | None]:
    """Publishes a block for each key, whose bytes are its number."""
    reserved = blocks.reserve(keys(*numbers))
    for number, block in zip(numbers, reserved.numbers, strict=True):
        if block is not None:
            blocks.memoryview(block)[:] = bytes([number]) * BYTES
    reserved.publish()
    return reserved.numbers


def figures(blocks: gpuwm.Blocks) -> tuple[int, int, int, int]:
    """free, owned, ready, held"""
    found = blocks.figures()
    assert found.blocks == COUNT == found.free + found.owned + found.ready + found.held
    return found[1:]


# ---- filling and reading -----------------------------------------------------------------------


def test_what_is_published_is_found(blocks: gpuwm.Blocks) -> None:
    wanted = keys(1, 2, 3)
    with blocks.reserve(wanted) as reserved:
        assert len(reserved) == len(set(reserved.numbers)) == 3
        assert figures(blocks) == (5, 3, 0, 0)
        assert (blocks.find(wanted), len(blocks.hold(wanted))) == (0, 0)
        reserved.publish()
    assert figures(blocks) == (5, 0, 3, 0)
    assert blocks.find(wanted + MISSING + key(1)) == 3
    with blocks.hold(wanted + MISSING + key(1)) as held:
        assert held.numbers == reserved.numbers
        assert held.keys() == wanted
        assert figures(blocks) == (5, 0, 0, 3)
    assert figures(blocks) == (5, 0, 3, 0)


def test_the_bytes_are_those_that_were_written(blocks: gpuwm.Blocks) -> None:
    fill(blocks, *range(COUNT))
    order = [5, 0, 7]
    with blocks.hold(keys(*order)) as held:
        found = [blocks.memoryview(number) for number in held.numbers]
        assert found == [bytes([n]) * BYTES for n in order]


def test_another_check_is_a_miss(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    other = key(1)[:16] + bytes(8)
    assert blocks.find(other) == 0
    with blocks.reserve(other) as reserved:
        assert reserved.numbers[0] is not None
        reserved.publish()
    assert (blocks.find(other), blocks.find(key(1))) == (1, 1)
    assert blocks.hold(other).numbers != blocks.hold(key(1)).numbers


def test_a_key_that_is_there_needs_no_block(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    filling = blocks.reserve(key(2))
    with blocks.reserve(keys(1, 2, 3)) as reserved:
        assert reserved.numbers[:2] == [None, None]
        assert reserved.numbers[2] not in (None, *filling.numbers)
        assert reserved.keys is not None
        reserved.publish()
    assert figures(blocks) == (5, 1, 2, 0)
    filling.abandon()


def test_what_is_not_published_is_free(blocks: gpuwm.Blocks) -> None:
    with blocks.reserve(keys(1, 2)):
        assert figures(blocks)[1] == 2
    assert figures(blocks) == (COUNT, 0, 0, 0)
    reserved = blocks.reserve(key(1))
    reserved.abandon()
    for call in (reserved.abandon, reserved.publish):
        with pytest.raises(gpuwm.Closed, match="published or abandoned already"):
            call()
    reserved = blocks.reserve(keys(1, 2))
    del reserved
    assert figures(blocks) == (COUNT, 0, 0, 0)


def test_a_release_counts_once(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    held, again = blocks.hold(key(1)), blocks.hold(key(1))
    held.release()
    assert figures(blocks)[3] == 1
    with pytest.raises(gpuwm.Closed, match="released already"):
        held.release()
    del again
    assert figures(blocks) == (7, 0, 1, 0)


def test_no_keys_are_no_blocks(blocks: gpuwm.Blocks) -> None:
    with blocks.reserve(b"") as reserved, blocks.hold([], wait=5) as held:
        assert (reserved.numbers, held.numbers) == ([], [])
    assert blocks.find(b"") == blocks.drop([]) == 0


def test_keys_in_several_forms(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1, 2)
    forms: tuple[Any, ...] = (
        *(keys(1, 2), bytearray(keys(1, 2)), memoryview(keys(1, 2))),
        *([key(1), key(2)], (key(n) for n in (1, 2))),
    )
    assert [blocks.find(form) for form in forms] == [2] * 5
    for call in (blocks.find, blocks.reserve, blocks.hold, blocks.drop):
        for wrong in (b"x", keys(1) + b"x", [keys(1, 2)], [b""]):
            with pytest.raises(gpuwm.Invalid, match="16 of the key, 8 of the check"):
                call(wrong)
        kinds: tuple[Any, ...] = (5, None, "k" * 24, [5], ["k" * 24])
        for kind in kinds:
            with pytest.raises(TypeError, match="keys="):
                call(kind)


# ---- making room -------------------------------------------------------------------------------


def test_what_was_wanted_longest_ago_makes_room(blocks: gpuwm.Blocks) -> None:
    for n in range(COUNT):
        fill(blocks, n)
    blocks.find(key(0))
    blocks.hold(key(1)).release()
    fill(blocks, 10, 11)
    assert [n for n in range(COUNT) if not blocks.find(key(n))] == [2, 3]


def test_the_end_of_a_prefix_makes_room_first(blocks: gpuwm.Blocks) -> None:
    fill(blocks, *range(COUNT))
    fill(blocks, 10, 11)
    assert blocks.find(keys(*range(COUNT))) == COUNT - 2


def test_what_is_held_stays(blocks: gpuwm.Blocks) -> None:
    fill(blocks, *range(COUNT))
    held = blocks.hold(keys(*range(COUNT - 1)))
    reserved = blocks.reserve(keys(20, 21, 22))
    assert len(reserved) == 1  # there is no room for more
    with pytest.raises(gpuwm.PoolFull, match=f"process {os.getpid()}"):
        blocks.reserve(key(30))
    began = time.monotonic()
    with pytest.raises(gpuwm.PoolFull):
        blocks.reserve(key(30), wait=0.3)
    assert time.monotonic() - began >= 0.3
    once(asleep, held.release)
    assert blocks.reserve(key(30), wait=60).numbers[0] in held.numbers
    assert figures(blocks)[3] == 0


def test_what_is_dropped_is_free(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1, 2, 3)
    filling, held = blocks.reserve(key(4)), blocks.hold(key(3))
    assert blocks.drop(keys(1, 2, 3, 4) + MISSING) == 2
    assert figures(blocks) == (6, 1, 0, 1)
    held.release()
    assert blocks.drop(key(3)) == 1
    filling.publish()
    assert blocks.find(key(4)) == 1


# ---- waiting -----------------------------------------------------------------------------------


def test_a_hold_waits_for_what_is_filled(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    filling = blocks.reserve(keys(2, 3))
    assert blocks.hold(keys(1, 2, 3)).numbers == blocks.hold(key(1)).numbers
    began = time.monotonic()
    assert len(blocks.hold(keys(1, 2, 3), wait=0.5)) == 1
    assert time.monotonic() - began >= 0.5
    once(asleep, filling.publish)
    with blocks.hold(keys(1, 2, 3) + MISSING, wait=60) as held:
        assert held.numbers[1:] == filling.numbers
    assert figures(blocks) == (5, 0, 3, 0)


@pytest.mark.parametrize("wait", [60, float("inf")])
def test_nobody_waits_for_what_nobody_fills(wait: float, blocks: gpuwm.Blocks) -> None:
    began = time.monotonic()
    assert len(blocks.hold(MISSING, wait)) == 0
    filling = blocks.reserve(key(1))
    once(asleep, filling.abandon)
    assert len(blocks.hold(key(1), wait)) == 0
    assert time.monotonic() - began < 30


def test_ctrl_c_ends_a_wait(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    filling = blocks.reserve(keys(*range(2, COUNT + 1)))
    held = blocks.hold(key(1))
    calls: tuple[Callable[[], object], ...] = (
        lambda: blocks.hold(keys(1, 2), wait=60),
        lambda: blocks.reserve(key(30), wait=60),
        lambda: blocks.hold_these(these, wait=60),
    )
    these = held.these[:16] + bytes(filling._blocks)[:8]
    for call in calls:
        began = time.monotonic()
        once(asleep, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            call()
        assert time.monotonic() - began < 30
    gc.collect()
    held.release()
    assert figures(blocks) == (0, COUNT - 1, 1, 0)
    filling.abandon()


# ---- from one process to another ---------------------------------------------------------------


def test_blocks_that_are_named_are_held(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1, 2)
    first = blocks.hold(keys(1, 2))
    these = pickle.loads(pickle.dumps(first.these))
    with blocks.hold_these(these) as again:
        assert again.numbers == first.numbers
        first.release()
        assert figures(blocks)[3] == 2
    assert blocks.drop(key(2)) == 1
    with pytest.raises(gpuwm.Lost):
        blocks.hold_these(these)
    assert figures(blocks) == (7, 0, 1, 0)


def test_blocks_that_are_filled_are_waited_for(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    filling = blocks.reserve(key(2))
    these = blocks.hold(key(1)).these[:16] + bytes(filling._blocks)
    with pytest.raises(gpuwm.NotYet):
        blocks.hold_these(these)
    with pytest.raises(gpuwm.NotYet):
        blocks.hold_these(these, wait=0.3)
    once(asleep, filling.publish)
    assert blocks.hold_these(these, wait=60).numbers == filling.numbers


def test_wrong_names_of_blocks(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    these = blocks.hold(key(1)).these
    for wrong in (b"", these[:15], these[:-1], bytes(16) + these[16:]):
        with pytest.raises(gpuwm.Invalid):
            blocks.hold_these(wrong)
    with pytest.raises(TypeError, match="bytes of Held.these"):
        blocks.hold_these(these.hex())  # type: ignore[arg-type]
    with pytest.raises(gpuwm.Error):
        blocks.hold_these(these[:16] + b"\xff\xff\xff\x00" + bytes(4))
    assert blocks.hold_these(these[:16]).numbers == []


# ---- one writes, many read ---------------------------------------------------------------------


def test_get_or_put_makes_once(blocks: gpuwm.Blocks) -> None:
    made: list[memoryview] = []

    def make(memory: memoryview) -> None:
        memory[:] = b"x" * BYTES
        made.append(memory)

    for _ in range(3):
        with blocks.get_or_put(key(1), make) as held:
            assert blocks.memoryview(held.numbers[0]) == b"x" * BYTES
    assert len(made) == 1
    with pytest.raises(ValueError, match="released"):
        made[0][0]
    for wrong in (keys(1, 2), b""):
        with pytest.raises(gpuwm.Invalid, match="one key"):
            blocks.get_or_put(wrong, make)
    with pytest.raises(TypeError, match="make="):
        blocks.get_or_put(key(1), None)  # type: ignore[arg-type]


def test_threads_make_it_once(blocks: gpuwm.Blocks) -> None:
    def make(memory: memoryview) -> None:
        made.append(threading.get_ident())
        eventually(lambda: asleep() == 3)  # the others

    def get() -> None:
        with blocks.get_or_put(key(1), make) as held:
            numbers.append(held.numbers)

    made: list[int] = []
    numbers: list[list[int]] = []
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(made), len(numbers)) == (1, 4)
    assert figures(blocks) == (7, 0, 1, 0)


def test_a_make_that_fails_leaves_no_block(blocks: gpuwm.Blocks) -> None:
    def make(memory: memoryview) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        blocks.get_or_put(key(1), make)
    assert figures(blocks) == (COUNT, 0, 0, 0)
    kept: list[object] = []
    with blocks.get_or_put(key(1), lambda memory: kept.append(memory[:5])):
        assert figures(blocks)[3] == 1


def test_get_or_put_waits_for_who_makes_it(blocks: gpuwm.Blocks) -> None:
    filling = blocks.reserve(key(1))
    for wait in (None, 0.3):
        with pytest.raises(gpuwm.TimedOut, match="block cache cache"):
            blocks.get_or_put(key(1), pytest.fail, wait)
    once(asleep, filling.publish)
    assert blocks.get_or_put(key(1), pytest.fail).numbers == filling.numbers
    filling = blocks.reserve(key(2))
    once(asleep, filling.abandon)
    made: list[object] = []
    assert blocks.get_or_put(key(2), made.append).numbers
    assert len(made) == 1


def test_get_or_put_into_a_full_region(blocks: gpuwm.Blocks) -> None:
    fill(blocks, *range(COUNT))
    held = blocks.hold(keys(*range(COUNT)))
    with pytest.raises(gpuwm.PoolFull):
        blocks.get_or_put(key(20), pytest.fail, wait=0.1)
    once(asleep, held.release)
    assert blocks.get_or_put(key(20), lambda _: None, wait=60).numbers[0] in held.numbers
