"""Room for the tensors of a message: all of them at once, in turn, and given up by who leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from conftest import DEVICE, Daemon, asleep, by_torch, eventually, once, until

import gpuwm
from gpuwm.transport import frameworks
from gpuwm.transport.deadlines import Deadline
from gpuwm.transport.send import Sending

pytestmark = by_torch
MIB = 1 << 20
ROOM = 2 * MIB


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(ROOM, DEVICE, chunks=64) as made:
        yield made
        gc.collect()
        eventually(lambda: made.figures()[3:] == (0, 0))


@pytest.fixture
def messages(daemon: Daemon, pool: gpuwm.Pool) -> Iterator[gpuwm.Queue]:
    with gpuwm.Queue(8, pool=pool) as made:
        yield made


def of(nbytes: int) -> torch.Tensor:
    return torch.zeros(nbytes, dtype=torch.uint8, device=DEVICE)


# ---- all or none -------------------------------------------------------------------------------


def got(messages: gpuwm.Queue, count: int) -> None:
    for _ in range(count):
        del messages.get(timeout=60)[:]


def test_messages_of_several_tensors_do_not_wait_for_each_other(messages: gpuwm.Queue) -> None:
    part = of(ROOM * 2 // 5)

    def put() -> None:
        for _ in range(50):
            messages.put([part, part.clone()], timeout=60)

    putting = [threading.Thread(target=put) for _ in range(3)]
    for each in putting:
        each.start()
    got(messages, 150)
    for each in putting:
        each.join()


def test_neither_do_those_of_asyncio(messages: gpuwm.Queue) -> None:
    part = of(ROOM * 2 // 5)

    async def flow() -> None:
        puts = [
            asyncio.create_task(messages.aput([part, part.clone()], timeout=60)) for _ in range(6)
        ]
        for _ in range(6):
            del (await messages.aget(timeout=60))[:]
        await asyncio.gather(*puts)

    asyncio.run(flow())


def test_nor_do_messages_with_two_pools(daemon: Daemon, pool: gpuwm.Pool) -> None:
    most = of(ROOM * 2 // 3)
    layout = frameworks.layout_of(most)
    assert layout is not None

    def put(pools: Iterable[gpuwm.Pool]) -> None:
        for _ in range(100):
            sending = Sending((), Deadline(60), others=1)
            for each in pools:  # as if each were the pool of the tensor's device
                sending._pools = (each,)
                sending.add(layout, most, "pool")
            sending.put()
            done.append(None)
            sending.withdraw()

    done: list[None] = []
    with gpuwm.Pool(ROOM, DEVICE) as other:
        both = pool, other
        putting = [threading.Thread(target=put, args=(each,)) for each in (both, both[::-1])]
        for each in putting:
            each.start()
        for each in putting:
            each.join()
        assert len(done) == 200


def test_what_can_never_fit_is_refused_at_once(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    half = of(ROOM // 2 + 1)
    values: tuple[tuple[Any, str], ...] = (
        ([half, half.clone()], "2 tensors of one message.*larger"),
        ([of(ROOM // 60 + k) for k in range(61)], "61 tensors of one message.*larger"),
        ([of(1) for _ in range(65)], "65 tensors of one message.*64"),
        (of(ROOM + 1), "larger"),
    )
    for value, said in values:
        with pytest.raises(gpuwm.NoRoom, match=said):
            messages.put(value)
        with pytest.raises(gpuwm.NoRoom, match=said):
            asyncio.run(messages.aput(value))
        with pytest.raises(gpuwm.NoRoom, match=said):
            gpuwm.wrap(value, "pool", pool, wait=60)
    assert pool.figures().chunks == 0


def test_a_message_without_place_in_its_queue_takes_no_room(
    daemon: Daemon, messages: gpuwm.Queue, pool: gpuwm.Pool
) -> None:
    taken = pool.empty(ROOM, "uint8")
    with pytest.raises(gpuwm.TooLarge, match="65536"):
        messages.put([of(1), bytes(70_000)])
    with (
        gpuwm.Pool(MIB, DEVICE, chunks=4096) as large,
        gpuwm.Queue(1, MIB, pool=large) as other,
        pytest.raises(gpuwm.TooLarge, match="1,100 tensors"),
    ):
        other.put([of(1) for _ in range(1100)])
    taken.discard()


def test_a_tensor_that_occurs_twice_is_put_once(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    one = of(5)
    messages.put([one, one, pool.put(one), of(6)])
    assert pool.figures().chunks == 3
    first, second, ref, other = messages.get()
    assert first is second
    assert (len(first), len(ref.copy()), len(other)) == (5, 5, 6)
    del first, second, other


def test_a_tensor_that_can_not_be_offered_gives_all_back(pool: gpuwm.Pool) -> None:
    with pytest.raises(gpuwm.Invalid, match="others=16"):
        gpuwm.wrap([of(1), of(2)], "pool", pool, others=16)
    assert pool.figures().chunks == 0


def test_sizes_do_not_wrap(pool: gpuwm.Pool) -> None:
    for shape in ((3, 6148914691236517206), (1 << 33, 1 << 31), (0, 1 << 62, 8), (1 << 63,)):
        with pytest.raises(gpuwm.Invalid, match="shape"):
            pool.empty(shape, "uint8")
    with pytest.raises(gpuwm.NoRoom):
        pool.empty(2**63 - 1, "uint8")


# ---- those who leave the line ------------------------------------------------------------------


@contextlib.contextmanager
def blocked(pool: gpuwm.Pool) -> Iterator[None]:
    """Something waits in the block for more room than there is. When it has left, others get
    room."""
    held = pool.empty(1, "uint8")
    yield
    eventually(lambda: pool.figures().waiting == 0)
    pool.empty(1, "uint8", wait=60).discard()
    held.discard()


def interrupted(call: Callable[[], object], waits: Callable[[], bool]) -> None:
    thread = once(waits, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        call()
    thread.join()


def test_a_wait_that_is_interrupted_leaves_the_line(
    messages: gpuwm.Queue, pool: gpuwm.Pool
) -> None:
    whole = of(ROOM)
    calls: tuple[Callable[[], object], ...] = (
        lambda: pool.put(whole, wait=60),
        lambda: pool.empty(ROOM, "uint8", wait=60),
        lambda: messages.put(whole),
        lambda: gpuwm.wrap([whole[:MIB], whole[MIB:]], "pool", pool, wait=60),
    )
    for call in calls:
        with blocked(pool):
            interrupted(call, lambda: pool.figures().waiting == 1)


def test_a_task_that_is_cancelled_leaves_the_line(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    whole = of(ROOM)

    async def cancelled(task: asyncio.Task[Any]) -> None:
        await until(lambda: pool.figures().waiting == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def flow() -> None:
        for make in (
            lambda: pool.aput(whole),
            lambda: pool.aempty(ROOM, "uint8"),
            lambda: messages.aput(whole),
        ):
            with blocked(pool):
                await cancelled(asyncio.create_task(make()))

    asyncio.run(flow())


def test_room_that_comes_when_a_task_is_cancelled_is_given_back(pool: gpuwm.Pool) -> None:
    async def flow() -> None:
        for n in range(50):
            held = pool.empty(ROOM, "uint8", wait=5)  # a thread may give the last one back
            task = asyncio.create_task(pool.aempty(ROOM, "uint8"))
            await until(lambda: pool.figures().waiting == 1)
            held.discard()
            if n % 2:
                eventually(lambda: pool.figures().waiting == 0)  # the task has not run since
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await task).discard()

    asyncio.run(flow())


def test_a_future_that_is_cancelled_leaves_the_line(pool: gpuwm.Pool) -> None:
    with blocked(pool):
        future = pool.empty_later(ROOM, "uint8")
        with pytest.raises(gpuwm.PoolFull, match="1 callers of this process wait before it"):
            pool.put(of(1))
        assert future.cancel()


def test_a_pool_whose_waits_were_cancelled_can_be_closed(daemon: Daemon) -> None:
    pool = gpuwm.Pool(ROOM, DEVICE)
    ref = pool.put(of(1))
    interrupted(lambda: pool.put(of(ROOM), wait=60), lambda: pool.figures().waiting == 1)
    assert pool.empty_later(ROOM, "uint8").cancel()
    ref.withdraw()
    pool.close()


# ---- draining ----------------------------------------------------------------------------------


def test_draining_is_in_nobodys_way(pool: gpuwm.Pool) -> None:
    ref = pool.put(of(1))
    draining = threading.Thread(target=pool.drain)
    draining.start()
    for _ in range(20):
        pool.empty(MIB, "uint8").discard()
        assert pool.figures().waiting == 0
    with pytest.raises(gpuwm.TimedOut, match="readers that have not come"):
        pool.drain(0.01)
    interrupted(pool.drain, lambda: asleep() == 2)
    assert draining.is_alive()
    ref.withdraw()
    draining.join(60)
    assert not draining.is_alive()


def test_draining_drops_no_late_reader(daemon: Daemon) -> None:
    with gpuwm.Pool(ROOM, DEVICE, ttl=0.001) as pool:
        ref = pool.put(of(3))
        with pytest.raises(gpuwm.TimedOut):
            pool.drain(0.05)
        assert len(ref.copy()) == 3
        pool.drain()


def test_a_queue_that_waits_for_room_is_full_at_the_deadline(
    messages: gpuwm.Queue, pool: gpuwm.Pool
) -> None:
    held = pool.empty(1, "uint8")
    with pytest.raises(queue.Full, match="has no room"):
        messages.put(of(ROOM), timeout=0.05)
    with pytest.raises(queue.Full, match="has no room"):
        asyncio.run(messages.aput(of(ROOM), timeout=0.05))
    assert pool.figures().waiting == 0
    held.discard()
