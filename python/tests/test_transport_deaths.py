"""Processes that are killed, and many messages: no chunk, descriptor or file is left behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
import torch
from conftest import DEVICE, Daemon, by_torch, eventually
from other_processes import Peer, peers
from test_transport_pool import is_free

import gpuwm

pytestmark = by_torch
ROOM = 2 << 20  # of a pool: a GPU's memory comes in such pieces


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(ROOM, DEVICE) as made:
        yield made
        gc.collect()


def test_a_killed_reader_has_finished(pool: gpuwm.Pool) -> None:
    with peers(2) as (killed, lives):
        viewed, untaken = pool.put(torch.ones(3), others=2), pool.put(torch.ones(3))
        for peer in (killed, lives):
            peer.run("view = ref.view()", ref=viewed)
        killed.kill()
        assert lives.run("ref.copy().tolist()", ref=untaken) == [1, 1, 1]
        eventually(lambda: pool.figures().chunks == 1)  # the other one's view
        assert lives.run("view.tolist()") == [1, 1, 1]
        lives.run("del view, ref")
        eventually(lambda: is_free(pool))


def test_a_killed_reader_lets_a_put_go_on(pool: gpuwm.Pool) -> None:
    whole = torch.zeros(ROOM, dtype=torch.uint8)
    with peers(1) as (killed,):
        killed.run("view = ref.view()", ref=pool.put(whole))
        with pytest.raises(gpuwm.PoolFull, match=str(killed.pid)):
            pool.put(whole)
        killed.kill()
        pool.put(whole, wait=30).withdraw()
    eventually(lambda: is_free(pool))


def test_a_killed_getter_frees_its_messages(pool: gpuwm.Pool) -> None:
    with gpuwm.Queue(4, pool=pool) as messages, peers(2) as (killed, lives):
        messages.put([torch.ones(3), torch.ones(3)])
        messages.put(torch.zeros(3))
        killed.run("found = q.get()", q=messages)
        killed.kill()
        assert lives.run("q.get(how='copy').tolist()", q=messages) == [0, 0, 0]
        eventually(lambda: is_free(pool))


def has_ended(peer: Peer, pool: str) -> bool:
    """Whether the peer learns that the pool is gone."""
    try:
        peer.run("gpuwm.Pool.open(id).check()", id=pool)
    except (gpuwm.NotFound, gpuwm.OwnerDied):
        return True
    return False


def test_a_killed_sender_is_named(daemon: Daemon) -> None:
    with peers(2) as (sender, reader):
        sender.run(f"pool = gpuwm.Pool({ROOM}, {DEVICE!r})")
        held, late = sender.run("[pool.put(torch.ones(3)) for _ in range(2)]")
        reader.run("view = ref.view()", ref=held)
        sender.kill()
        assert reader.run("view.tolist()") == [1, 1, 1]
        eventually(lambda: has_ended(reader, late.token[:16].hex()))
        with pytest.raises(gpuwm.OwnerDied, match=str(sender.pid)):
            reader.run("ref.view()", ref=late)
        assert reader.run("view.tolist()") == [1, 1, 1]


def test_a_message_whose_pool_is_gone_does_not_stop_the_queue(daemon: Daemon) -> None:
    with gpuwm.Queue(4) as messages, peers(2) as (sender, reader):
        sender.run(f"pool = gpuwm.Pool({ROOM}, {DEVICE!r})")
        sender.run("q.put([1, pool.put(torch.ones(3))])", q=messages)
        sender.run(f"q.put(torch.ones(3, device={DEVICE!r}), pool=pool)")
        messages.put("last")
        pool = sender.run("pool.id")
        sender.kill()
        eventually(lambda: has_ended(reader, pool))
        number, ref = messages.get()
        assert number == 1
        with pytest.raises(gpuwm.Lost):
            ref.view()
        with pytest.raises(gpuwm.Lost):
            messages.get()
        assert messages.get() == "last"


def test_the_creator_of_a_queue_dies(daemon: Daemon) -> None:
    with peers(2) as (creator, getter):
        creator.run("q = gpuwm.Queue(4)")
        getter.run("q = gpuwm.Queue.open(id)", id=creator.run("q.id"))
        getter.start("q.get()")
        creator.kill()
        with pytest.raises(gpuwm.OwnerDied, match=str(creator.pid)):
            getter.result()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def files() -> int:
    return len(os.listdir("/dev/shm"))


_COUNTED = "(len(os.listdir('/proc/self/fd')), resident())"
_RESIDENT = """
import os
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def echo(count, how):
    total = 0.0
    for _ in range(count):
        n, tensor = q.get(how=how)
        total += float(tensor[0]) - n
        del tensor
    return total
"""


@pytest.mark.parametrize("how", ["view", "copy"])
def test_ten_thousand_messages_leave_nothing(how: str, daemon: Daemon) -> None:
    with gpuwm.Pool(ROOM, DEVICE) as pool, gpuwm.Queue(16, pool=pool) as messages:
        with peers(1) as (reader,):
            reader.run(_RESIDENT)
            reader.run("None", q=messages)
            tensor = torch.zeros(1024)
            _send(messages, reader, tensor, 500, how)
            gc.collect()  # of earlier tests
            before, there, theirs = descriptors(), files(), reader.run(_COUNTED)
            _send(messages, reader, tensor, 10_000, how)
            after = reader.run(_COUNTED)
            assert descriptors() == before
            assert files() - there < 1_000  # other programs make some, too
            assert after[0] == theirs[0]
            assert after[1] - theirs[1] < 8 << 20
            eventually(lambda: is_free(pool))
        gc.collect()


def _send(messages: gpuwm.Queue, reader: Peer, tensor: torch.Tensor, count: int, how: str) -> None:
    reader.start(f"echo({count}, {how!r})")
    for n in range(count):
        messages.put((n, tensor.fill_(n)))
    assert reader.result() == 0
