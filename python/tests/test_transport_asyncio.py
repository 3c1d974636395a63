"""Queues with asyncio, what a cancelled call leaves, and a lock that another process holds."""

from __future__ import annotations

import asyncio
import gc
import queue
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import DEVICE, Daemon, by_torch, eventually, until
from other_processes import Peer
from test_transport_pool import is_free

import gpuwm

pytestmark = by_torch
ROOM = 2 << 20  # of a pool: a GPU's memory comes in such pieces


@pytest.fixture
def messages(daemon: Daemon) -> Iterator[gpuwm.Queue]:
    with gpuwm.Queue(4) as made:
        yield made
        gc.collect()


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(ROOM, DEVICE) as made:
        yield made
        gc.collect()


def test_asyncio_waits_for_messages_and_room(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    whole = torch.zeros(ROOM, dtype=torch.uint8)

    async def flow() -> None:
        waiting = asyncio.create_task(messages.aget(how="copy"))
        await asyncio.sleep(0)  # it has looked once, and naps
        await messages.aput(whole, pool=pool)
        assert len(await waiting) == ROOM
        with pytest.raises(queue.Empty):
            await messages.aget(timeout=0.01)
        await messages.aput(whole, pool=pool)
        with pytest.raises(queue.Full):
            await messages.aput(whole, timeout=0.01, pool=pool)
        late = asyncio.create_task(messages.aput(whole, pool=pool))
        await until(lambda: pool.figures().waiting == 1)
        assert len(await messages.aget(how="copy")) == ROOM
        await asyncio.wait_for(late, 60)
        assert len(await messages.aget(how="copy")) == ROOM

    asyncio.run(flow())
    eventually(lambda: is_free(pool))


def test_a_cancelled_get_loses_no_message(messages: gpuwm.Queue) -> None:
    random.seed(5)
    sent, got = list(range(100)), []

    async def flow() -> None:
        for n in sent:
            waiting = asyncio.create_task(messages.aget())
            await asyncio.sleep(0)
            sender = threading.Timer(random.random() * 0.002, messages.put, (n,))
            sender.start()
            await asyncio.sleep(random.random() * 0.004)
            waiting.cancel()
            try:
                got.append(await waiting)
            except asyncio.CancelledError:
                got.append(await messages.aget(timeout=10))
            sender.join()

    asyncio.run(flow())
    assert got == sent


def test_cancelled_gets_keep_the_order_for_everybody(messages: gpuwm.Queue, peer: Peer) -> None:
    async def flow() -> None:
        waiting = [asyncio.create_task(messages.aget()) for _ in range(3)]
        await asyncio.sleep(0)  # each has looked once, and naps
        for n in range(4):
            messages.put(n)
        for each in waiting:
            each.cancel()
        assert not messages._region._calls  # nobody is about to take one
        assert messages.get_nowait() == 0
        assert peer.run("q.get(timeout=5)", q=messages) == 1

    asyncio.run(flow())
    assert [messages.get_nowait() for _ in range(2)] == [2, 3]


def test_a_loop_that_is_closed_takes_no_message(messages: gpuwm.Queue) -> None:
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(messages.aget())
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    messages.put("kept")
    assert not messages._region._calls
    assert messages.get_nowait() == "kept"


def test_a_cancelled_put_puts_nothing(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    for n in range(4):
        messages.put(n)

    async def flow() -> None:
        waiting = asyncio.create_task(messages.aput(torch.ones(3), pool=pool))
        await until(lambda: pool.figures().chunks == 1)
        waiting.cancel()
        assert messages.get() == 0
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(flow())
    assert not messages._region._calls
    assert messages.qsize() == 3
    eventually(lambda: is_free(pool))


def test_asyncio_notices_the_end_of_a_queue(daemon: Daemon) -> None:
    async def flow(end: Callable[[gpuwm.Queue], None]) -> None:
        with gpuwm.Queue(1) as messages:
            waiting = [asyncio.create_task(messages.aget()) for _ in range(40)]
            await asyncio.sleep(0)  # each has looked once, and naps
            end(messages)
            found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
            assert {type(each) for each in found} == {gpuwm.Closed}

    asyncio.run(flow(gpuwm.Queue.shut))
    asyncio.run(flow(gpuwm.Queue.close))


def test_a_lock_that_is_held_is_not_full_or_empty(
    messages: gpuwm.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(*_: Any) -> None:
        raise gpuwm.Busy("the lock of queue q is held by process 5")

    monkeypatch.setattr(messages, "_put", held)
    monkeypatch.setattr(messages, "_get", held)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: messages.put(1, timeout=0.01),
        messages.get_nowait,
        lambda: asyncio.run(messages.aput(1, timeout=0.01)),
        lambda: asyncio.run(messages.aget(timeout=0.01)),
    )
    for call in calls:
        with pytest.raises(gpuwm.Busy, match="process 5"):
            call()


def test_a_wait_goes_on_while_a_lock_is_held(
    messages: gpuwm.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, calls = messages._put, iter([True, True, False])

    def held(*arguments: Any) -> None:
        if next(calls):
            raise gpuwm.Busy("the lock of queue q is held by process 5")
        put(*arguments)

    monkeypatch.setattr(messages, "_put", held)
    messages.put("late")
    assert messages.get_nowait() == "late"
