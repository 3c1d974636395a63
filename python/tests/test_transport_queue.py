"""gpuwm.Queue: as multiprocessing's, with tensors that are not copied through a pipe."""

from __future__ import annotations

import gc
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEVICE, Daemon, asleep, by_torch, eventually, on_host, once
from other_processes import Peer, peers
from test_fork import in_child
from test_transport_pool import is_free
from torch import nn

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


# ---- as the standard library's -----------------------------------------------------------------


def test_objects_come_in_order(messages: gpuwm.Queue, peer: Peer) -> None:
    sent = [1, "text", {"a": [None, 2.5]}, (b"x", {3})]
    for each in sent:
        messages.put(each)
    assert (messages.qsize(), messages.full(), messages.empty()) == (4, True, False)
    assert peer.run("[q.get() for _ in range(4)]", q=messages) == sent
    assert (messages.qsize(), messages.full(), messages.empty()) == (0, False, True)
    peer.run("q.put(('back', 5))")
    assert messages.get() == ("back", 5)


def test_full_and_empty_raise_as_the_standard_librarys(messages: gpuwm.Queue) -> None:
    for call in (
        messages.get_nowait,
        lambda: messages.get(False),
        lambda: messages.get(True, 0.05),
    ):
        with pytest.raises(queue.Empty):
            call()
    for n in range(messages.maxsize):
        messages.put(n, timeout=0)
    puts: tuple[Callable[[], None], ...] = (
        lambda: messages.put_nowait(5),
        lambda: messages.put(5, block=False),
        lambda: messages.put(5, timeout=0.05),
    )
    for put in puts:
        with pytest.raises(queue.Full):
            put()
    for wrong in (lambda: messages.get(timeout=-1), lambda: messages.put(1, timeout=-1)):
        with pytest.raises(ValueError, match="timeout"):
            wrong()


def test_waits_end_when_a_message_or_room_comes(messages: gpuwm.Queue, peer: Peer) -> None:
    peer.start("q.get()", q=messages)
    messages.put("late")
    assert peer.result() == "late"
    for n in range(4):
        messages.put(n)
    peer.start("q.put(4)")
    assert [messages.get() for _ in range(4)] == [0, 1, 2, 3]
    peer.result()
    assert messages.get(timeout=10) == 4


def test_threads_share_it(messages: gpuwm.Queue) -> None:
    got: list[int] = []

    def get() -> None:
        while (value := messages.get()) is not None:
            got.append(value)

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(400):
        messages.put(n)
    for _ in threads:
        messages.put(None)
    for thread in threads:
        thread.join(60)
    assert sorted(got) == list(range(400))


def test_after_shut_the_rest_is_got(messages: gpuwm.Queue, peer: Peer) -> None:
    messages.put("rest")
    peer.start("q.get(), q.get()", q=messages)
    eventually(messages.empty)
    messages.shut()
    with pytest.raises(gpuwm.Closed):
        peer.result()
    with pytest.raises(gpuwm.Closed):
        messages.put(1)
    with pytest.raises(gpuwm.Closed):
        messages.get()


def test_a_message_that_is_too_large_says_so(messages: gpuwm.Queue) -> None:
    with pytest.raises(gpuwm.TooLarge, match="65536"):
        messages.put(bytes(70_000))
    messages.put(bytes(60_000))
    assert messages.get() == bytes(60_000)


def test_it_is_opened_by_name_and_once_in_a_process(daemon: Daemon, peer: Peer) -> None:
    with gpuwm.Queue(2, 128, name="named") as named:
        with gpuwm.Queue.open("named") as again:
            again.put(1)
        assert named.get() == 1
        assert peer.run("gpuwm.Queue.open('named').maxsize") == 2
        with pytest.raises(gpuwm.Invalid, match="is no pool: gpuwm.Queue.open"):
            gpuwm.Pool.open("named")
        with pytest.raises(gpuwm.Exists):
            gpuwm.Queue(2, name="named")
    for maxsize in (0, -1, 1 << 20):
        with pytest.raises(gpuwm.Invalid, match=rf"maxsize={maxsize}: 1 to 65,536"):
            gpuwm.Queue(maxsize)


def test_closing_ends_a_wait(daemon: Daemon) -> None:
    messages = gpuwm.Queue(1)
    found: list[type] = []

    def get() -> None:
        try:
            messages.get()
        except gpuwm.Closed as error:
            found.append(type(error))

    waiting = threading.Thread(target=get)
    waiting.start()
    eventually(asleep)
    messages.close()
    waiting.join(10)
    assert found == [gpuwm.Closed]


def test_control_c_ends_a_wait_and_loses_no_message(messages: gpuwm.Queue) -> None:
    main = threading.main_thread().ident
    assert main is not None

    once(asleep, lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        messages.get()
    messages.put("kept")
    assert messages.get(timeout=0) == "kept"


def test_what_can_not_be_pickled_is_not_put(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    with pytest.raises(Exception, match="pickle"):
        messages.put([torch.ones(3), lambda: None], pool=pool)
    assert messages.empty()
    eventually(lambda: is_free(pool))


# ---- tensors -----------------------------------------------------------------------------------


def test_tensors_go_through_the_pool(messages: gpuwm.Queue, pool: gpuwm.Pool, peer: Peer) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    messages.put({"x": [tensor, tensor], "n": 5}, pool=pool)
    assert pool.figures().chunks == 1
    peer.run("found = q.get()", q=messages)
    assert peer.run("found['x'][0].tolist(), found['n']") == (tensor.tolist(), 5)
    assert peer.run("found['x'][0] is found['x'][1]")
    assert pool.figures().chunks == 1  # in place
    peer.run("del found")
    eventually(lambda: is_free(pool))
    messages.pool = pool
    assert messages.pool == (pool,)
    messages.put(tensor)
    assert peer.run("q.get(how='copy').add_(1).tolist()") == (tensor + 1).tolist()
    eventually(lambda: is_free(pool))


def test_tensors_without_a_pool_are_bytes(messages: gpuwm.Queue, peer: Peer) -> None:
    for tensor in (torch.arange(6).reshape(2, 3).t(), torch.tensor(1.5), torch.empty(0, 2)):
        messages.put(tensor)
        found = messages.get()
        assert torch.equal(found, tensor)
        assert found.dtype == tensor.dtype
    messages.put(np.arange(3))
    assert messages.get().tolist() == [0, 1, 2]


def test_parameters_stay_parameters(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    linear = nn.Linear(2, 2)
    for each in (None, pool):
        messages.put((linear, torch.ones(2, requires_grad=True)), pool=each)
        found, leaf = messages.get(how="copy")
        assert torch.equal(found(torch.ones(2)), linear(torch.ones(2)))
        assert isinstance(found.weight, nn.Parameter)
        assert found.weight.requires_grad
        assert leaf.requires_grad
    with pytest.raises(gpuwm.Invalid, match="detach"):
        messages.put(linear(torch.ones(2)), pool=pool)
    del found, leaf
    eventually(lambda: is_free(pool))


@on_host
def test_arrays_go_through_a_pool_on_host(
    messages: gpuwm.Queue, pool: gpuwm.Pool, peer: Peer
) -> None:
    messages.put([np.arange(6).reshape(2, 3), np.array(["text"])], pool=pool)
    peer.run("numbers, texts = q.get()", q=messages)
    assert peer.run("numbers.tolist(), texts.tolist()") == ([[0, 1, 2], [3, 4, 5]], ["text"])
    assert not peer.run("numbers.flags.writeable")
    peer.run("del numbers")
    eventually(lambda: is_free(pool))


def test_references_arrive_taken(messages: gpuwm.Queue, pool: gpuwm.Pool, peer: Peer) -> None:
    ref = pool.put(torch.ones(3))
    messages.put((ref, ref))
    first = peer.run("first, second = q.get()", q=messages)
    assert first is None
    assert peer.run("first is second and first.copy().tolist()") == [1, 1, 1]
    messages.put([pool.put(torch.ones(3)), pool.put(torch.ones(3))])
    peer.run("found = q.get()")
    eventually(lambda: pool.figures().chunks == 2)
    peer.run("import gc; found = first = second = None; gc.collect()")
    eventually(lambda: is_free(pool))  # nobody opened them


def test_a_reference_goes_to_each_of_several_queues(daemon: Daemon, pool: gpuwm.Pool) -> None:
    with peers(2) as both, gpuwm.Queue(2) as first, gpuwm.Queue(2) as second:
        ref = pool.put(torch.ones(3), others=2)
        for each, peer in zip((first, second), both, strict=True):
            each.put(ref)
            assert peer.run("q.get().copy().tolist()", q=each) == [1, 1, 1]
        eventually(lambda: is_free(pool))


def test_a_withdrawn_tensor_is_lost(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    ref = pool.put(torch.ones(3))
    messages.put([ref, 5])
    ref.withdraw()
    (there, five) = messages.get()
    assert five == 5
    with pytest.raises(gpuwm.Lost, match="withdrawn"):
        there.view()
    there.release()


def test_a_full_pool_makes_the_put_wait(
    messages: gpuwm.Queue, pool: gpuwm.Pool, peer: Peer
) -> None:
    whole = torch.zeros(ROOM, dtype=torch.uint8)
    messages.put(whole, pool=pool)
    puts: tuple[Callable[[], None], ...] = (
        lambda: messages.put(whole, False, pool=pool),
        lambda: messages.put(whole, timeout=0.05, pool=pool),
    )
    for put in puts:
        with pytest.raises(queue.Full):
            put()
    peer.start("len(q.get(how='copy'))", q=messages)
    messages.put(whole, pool=pool)
    assert peer.result() == ROOM
    assert len(messages.get(how="copy")) == ROOM
    half = torch.zeros(ROOM // 2 + 1, dtype=torch.uint8)
    with pytest.raises(gpuwm.NoRoom, match="one message"):
        messages.put([half, half.clone()], pool=pool)
    eventually(lambda: is_free(pool))


def test_a_put_that_fails_takes_its_tensors_back(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    for n in range(4):
        messages.put(n)
    with pytest.raises(queue.Full):
        messages.put(torch.ones(3), timeout=0.01, pool=pool)
    eventually(lambda: is_free(pool))
    messages.shut()
    with pytest.raises(gpuwm.Closed):
        messages.put(torch.ones(3), pool=pool)
    eventually(lambda: is_free(pool))


def test_a_get_that_fails_gives_the_chunks_back(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    messages.put([torch.ones(3), Breaks(), torch.ones(3)], pool=pool)
    with pytest.raises(ZeroDivisionError) as caught:  # which has the traceback
        messages.get()
    eventually(lambda: is_free(pool))
    del caught
    with pytest.raises(gpuwm.Invalid, match="how="):
        messages.get(how="other")  # type: ignore[arg-type]


def divide() -> Any:
    raise ZeroDivisionError


class Breaks:
    def __reduce__(self) -> Any:
        return divide, ()


# ---- forks and pickles ---------------------------------------------------------------------------


@on_host
def test_a_forked_child_uses_it(messages: gpuwm.Queue, pool: gpuwm.Pool) -> None:
    messages.put([5, torch.ones(3)], pool=pool)

    def body() -> None:
        five, tensor = messages.get(timeout=30)
        messages.put([five + 1, tensor.tolist()])

    in_child(body)
    assert messages.get(timeout=30) == [6, [1, 1, 1]]
    eventually(lambda: is_free(pool))


def test_only_a_queue_reads_its_messages() -> None:
    from gpuwm.transport import pickled

    data = pickle.dumps(Standing(pickled.at))
    with pytest.raises(gpuwm.Invalid, match="only gpuwm"):
        pickle.loads(data)


class Standing:
    def __init__(self, function: Any) -> None:
        self.function = function

    def __reduce__(self) -> Any:
        return self.function, (0,)
