"""gpuwm.Pool: room, tensors that are put, references, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEVICE, Daemon, asleep, by_torch, eventually, on_host, once, until
from other_processes import Peer, peers
from test_fork import in_child

import gpuwm

pytestmark = by_torch
MIB = 1 << 20


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(4 * MIB, DEVICE) as made:
        yield made
        gc.collect()


def is_free(pool: gpuwm.Pool) -> bool:
    figures = pool.figures()
    return (figures.chunks, figures.used) == (0, 0) and figures.largest_free == pool.nbytes


# ---- passing on --------------------------------------------------------------------------------


def test_a_tensor_is_viewed_in_another_process(pool: gpuwm.Pool, peer: Peer) -> None:
    ref = pool.put(torch.arange(6.0).reshape(2, 3))
    assert len(pickle.dumps(ref)) < 500
    assert (ref.mode, ref.dtype, ref.shape, ref.nbytes) == ("pool", "float32", (2, 3), 24)
    assert ref.device == pool.device
    assert not is_free(pool)
    assert peer.run("view = ref.view(); view.tolist()", ref=ref) is None
    assert peer.run("view.tolist()") == [[0, 1, 2], [3, 4, 5]]
    assert pool.figures().chunks == 1  # the view keeps it
    peer.run("part = view[1]; del view, ref")
    assert peer.run("part.tolist()") == [3, 4, 5]
    peer.run("del part")
    eventually(lambda: is_free(pool))


def test_a_copy_gives_the_chunk_back(pool: gpuwm.Pool, peer: Peer) -> None:
    for tensor in (torch.arange(6).t(), torch.tensor(5), torch.empty(0, 2), torch.ones(3).half()):
        ref = pool.put(tensor)
        peer.run("copy = ref.copy()", ref=ref)
        eventually(lambda: is_free(pool))
        assert peer.run("copy.add_(1).tolist()") == (tensor + 1).tolist()
        assert peer.run("str(copy.dtype)") == str(tensor.dtype)


def test_strides_of_a_permutation_arrive(pool: gpuwm.Pool, peer: Peer) -> None:
    tensor = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    strides = peer.run("ref.view().stride()", ref=pool.put(tensor))
    assert strides == tensor.stride()


@on_host
def test_an_array_of_numpy_needs_no_torch(daemon: Daemon) -> None:
    with gpuwm.Pool(2 * MIB) as pool, peers(1) as (peer,):
        ref = pool.put(np.arange(6, dtype=np.int16).reshape(2, 3))
        peer.run("array = ref.view()", ref=ref)
        assert peer.run("type(array).__name__, array.flags.writeable") == ("ndarray", False)
        assert peer.run("array.tolist()") == [[0, 1, 2], [3, 4, 5]]
        peer.run("del array")
        eventually(lambda: is_free(pool))
        found = peer.run("ref.copy()", ref=pool.put(np.arange(3.0)[::-1]))
        assert found.tolist() == [2, 1, 0]
        assert peer.run("ref.view('torch').tolist()", ref=pool.put(np.arange(3))) == [0, 1, 2]


def test_several_readers_each_finish(pool: gpuwm.Pool) -> None:
    with peers(2) as (first, second):
        ref = pool.put(torch.ones(3), others=2)
        first.run("view = ref.view()", ref=ref)
        assert second.run("ref.copy().tolist()", ref=ref) == [1, 1, 1]
        assert pool.figures().chunks == 1
        first.run("del view")
        eventually(lambda: is_free(pool))
        ref.finished(0)


def test_a_named_reader_is_waited_for(pool: gpuwm.Pool) -> None:
    with peers(2) as (first, second):
        slots = [each.run("gpuwm.Pool.open(id).slot", id=pool.id) for each in (first, second)]
        ref = pool.put(torch.ones(3), readers=slots[1])
        with pytest.raises(gpuwm.Lost):
            first.run("ref.view()", ref=ref)
        with pytest.raises(gpuwm.TimedOut):
            ref.finished(0.01)
        assert second.run("ref.copy().tolist()", ref=ref) == [1, 1, 1]
        ref.finished(10)
        with pytest.raises(gpuwm.NotFound):
            pool.put(torch.ones(1), readers=25)


def test_a_pool_is_opened_by_name_and_only_its_owner_puts(pool: gpuwm.Pool, peer: Peer) -> None:
    with gpuwm.Pool(2 * MIB, DEVICE, name="by-name") as named:
        peer.run("other = gpuwm.Pool.open('by-name')")
        assert peer.run("other.id, other.owns, other.nbytes") == (named.id, False, named.nbytes)
        with pytest.raises(gpuwm.Refused):
            peer.run("other.put(torch.ones(1))")
        with pytest.raises(gpuwm.Refused):
            peer.run("gpuwm.Pool.open('by-name', write=True)")
        with pytest.raises(gpuwm.Exists):
            gpuwm.Pool(2 * MIB, DEVICE, name="by-name")
        peer.run("other.close()")
        with pytest.raises(gpuwm.Closed):
            peer.run("other.put(torch.ones(1))")


# ---- used once ---------------------------------------------------------------------------------


def test_a_process_takes_a_tensor_once(pool: gpuwm.Pool, peer: Peer) -> None:
    ref = pool.put(torch.ones(3), others=2)
    peer.run("import pickle; again = pickle.loads(pickle.dumps(ref)); view = ref.view()", ref=ref)
    for call in ("ref.view()", "ref.copy()", "again.view()", "pickle.dumps(ref)"):
        with pytest.raises(gpuwm.Already):
            peer.run(call)
    peer.run("ref.release(); again.release()")  # do nothing
    assert peer.run("view.tolist()") == [1, 1, 1]
    peer.run("del view, again, ref")
    ref.release()
    eventually(lambda: is_free(pool))


def test_an_old_reference_is_refused(daemon: Daemon, peer: Peer) -> None:
    with gpuwm.Pool(2 * MIB, DEVICE, chunks=1) as pool:
        old = pool.put(torch.ones(3))
        peer.run("old.release()", old=old)
        eventually(lambda: is_free(pool))
        new = pool.put(torch.zeros(3), wait=10)
        with pytest.raises(gpuwm.Lost):
            peer.run("old.view()", old=old)
        assert peer.run("new.copy().tolist()", new=new) == [0, 0, 0]


def test_what_is_withdrawn_is_lost(pool: gpuwm.Pool, peer: Peer) -> None:
    ref = pool.put(torch.ones(3))
    ref.withdraw()
    eventually(lambda: is_free(pool))
    with pytest.raises(gpuwm.Lost):
        peer.run("ref.view()", ref=ref)


# ---- room --------------------------------------------------------------------------------------


def test_a_full_pool_says_so_and_waits_if_asked(pool: gpuwm.Pool, peer: Peer) -> None:
    half = torch.zeros(2 * MIB, dtype=torch.uint8)
    refs = [pool.put(half), pool.put(half)]
    with pytest.raises(gpuwm.PoolFull):
        pool.put(half)
    with pytest.raises(gpuwm.PoolFull):
        pool.put(half, wait=0.05)
    with pytest.raises(gpuwm.NoRoom):
        pool.put(torch.zeros(4 * MIB + 1, dtype=torch.uint8), wait=60)
    later = once(
        lambda: pool.figures().waiting == 1, lambda: peer.run("ref.release()", ref=refs[0])
    )
    refs.append(pool.put(half, wait=60))
    later.join()
    for ref in refs[1:]:
        peer.run("ref.release()", ref=ref)
    eventually(lambda: is_free(pool))


def test_draining_waits_for_readers(pool: gpuwm.Pool, peer: Peer) -> None:
    pool.drain(0)
    ref = pool.put(torch.ones(3))
    with pytest.raises(gpuwm.TimedOut, match="readers have not finished"):
        pool.drain(0.01)
    released = once(asleep, lambda: peer.run("ref.release()", ref=ref))
    pool.drain()
    assert is_free(pool)
    released.join()


def test_room_is_written_and_offered(pool: gpuwm.Pool, peer: Peer) -> None:
    filling = pool.empty((2, 3), torch.int32)
    filling.tensor.copy_(torch.arange(6).reshape(2, 3))
    ref = filling.offer()
    assert peer.run("ref.copy().tolist()", ref=ref) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(gpuwm.Closed):
        filling.offer()
    del filling
    eventually(lambda: is_free(pool))


def test_room_that_is_not_offered_is_given_back(pool: gpuwm.Pool) -> None:
    pool.empty(100, "float32").discard()
    assert is_free(pool)
    filling = pool.empty(100, "float32")
    filling.tensor.zero_()
    del filling
    gc.collect()
    assert is_free(pool)
    with pytest.raises(ZeroDivisionError), pool.empty(100, "float32") as filling:
        raise ZeroDivisionError
    del filling
    assert is_free(pool)
    with pytest.raises(gpuwm.Invalid, match="others=16"):
        pool.put(torch.ones(1), others=16)
    with pytest.raises(gpuwm.Invalid, match="for nobody"):
        pool.put(torch.ones(1), others=0)
    assert is_free(pool)


@on_host
def test_room_for_an_array(pool: gpuwm.Pool, peer: Peer) -> None:
    filling = pool.empty(3, np.float32)
    filling.tensor[:] = 7
    assert peer.run("type(ref.copy()).__name__", ref=filling.offer()) == "ndarray"


def test_asyncio_waits_for_room(pool: gpuwm.Pool, peer: Peer) -> None:
    whole = torch.zeros(4 * MIB, dtype=torch.uint8)

    async def flow() -> None:
        first = await pool.aput(whole)
        waiting = asyncio.create_task(pool.aput(whole))
        await until(lambda: pool.figures().waiting == 1)
        assert not waiting.done()
        peer.run("ref.release()", ref=first)
        second = await asyncio.wait_for(waiting, 60)
        late = asyncio.create_task(pool.aempty(whole.shape, torch.uint8))
        await until(lambda: pool.figures().waiting == 1)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        peer.run("ref.release()", ref=second)
        with pytest.raises(gpuwm.NoRoom):
            await pool.aempty(8 * MIB, torch.uint8)

    asyncio.run(flow())
    eventually(lambda: is_free(pool))


def test_a_future_has_room_later(pool: gpuwm.Pool) -> None:
    filling = pool.empty_later(100, torch.float32).result(60)
    filling.discard()
    whole = pool.empty(4 * MIB, torch.uint8)
    assert isinstance(pool.empty_later(1, "U8", wait=0.05).exception(60), gpuwm.PoolFull)
    cancelled = pool.empty_later(1, "U8")
    assert cancelled.cancel()
    whole.discard()
    eventually(lambda: is_free(pool))


# ---- how long ----------------------------------------------------------------------------------


def test_closing_waits_for_no_tensor(daemon: Daemon) -> None:
    pool = gpuwm.Pool(2 * MIB, DEVICE)
    filling = pool.empty(4, "float32")
    tensor = filling.tensor
    with pytest.raises(gpuwm.Busy):
        pool.close()
    filling.discard()
    del tensor, filling
    pool.check()
    pool.close()
    pool.close()
    for call in (pool.check, pool.figures, lambda: pool.put(torch.ones(1))):
        with pytest.raises(gpuwm.Closed):
            call()


def test_readers_outlive_the_pool(daemon: Daemon, peer: Peer) -> None:
    pool = gpuwm.Pool(2 * MIB, DEVICE)
    first, second = pool.put(torch.ones(3)), pool.put(torch.ones(3))
    peer.run("view = ref.view()", ref=first)
    pool.close()
    assert peer.run("view.tolist()") == [1, 1, 1]
    with pytest.raises((gpuwm.Ended, gpuwm.OwnerDied)):
        peer.run("ref.view()", ref=second)
    peer.run("del view, ref")


def test_a_pool_that_was_removed_has_ended(daemon: Daemon) -> None:
    pool = gpuwm.Pool(2 * MIB, DEVICE, name="removed")
    gpuwm.Pool.remove("removed")
    with pytest.raises(gpuwm.Ended):
        eventually(lambda: pool.check())
    pool.close()
    eventually(is_unknown)  # gpuwmd stores first that its last user has left


def is_unknown() -> bool:
    try:
        gpuwm.Pool.remove("removed")
    except gpuwm.NotFound:
        return True
    return False


def test_a_pool_of_a_user_stays(daemon: Daemon) -> None:
    with peers(2) as (first, second):
        first.run(f"pool = gpuwm.Pool({2 * MIB}, name='stays', writers='many', owner='uid')")
        with pytest.raises(gpuwm.Busy):
            second.run("gpuwm.Pool.open('stays', own=True)")
        first.kill()
        eventually(lambda: second.run(_OWNED))
        second.run("ref = pool.put(torch.ones(3), others=1)")
        assert second.run("ref.copy().tolist()") == [1, 1, 1]
    gpuwm.Pool.remove("stays")


_OWNED = """
def owned():
    try:
        return gpuwm.Pool.open("stays", own=True)
    except gpuwm.Busy:
        return None
pool = owned()
"""
_OWNED = f"exec({_OWNED!r}, globals()) or pool is not None"


@on_host
def test_a_forked_child_opens_by_itself(pool: gpuwm.Pool) -> None:
    ref = pool.put(torch.ones(3))

    def body() -> None:
        calls: tuple[Any, ...] = (pool.check, pool.figures, lambda: pool.put(torch.ones(1)))
        for call in calls:
            with pytest.raises(gpuwm.InChild):
                call()
        assert pickle.loads(pickle.dumps(ref)).copy().tolist() == [1, 1, 1]

    in_child(body)
    eventually(lambda: is_free(pool))


def test_what_can_not_be_put(pool: gpuwm.Pool) -> None:
    with pytest.raises(gpuwm.Unsupported):
        pool.put(torch.ones(2, 2).to_sparse())
    with pytest.raises(TypeError, match="Pool"):
        pickle.dumps(pool)
    for wrong in ({"writers": "two"}, {"owner": "me"}, {"chunks": 5000}, {"name": "a b/"}):
        arguments: dict[str, Any] = wrong
        with pytest.raises(gpuwm.Invalid):
            gpuwm.Pool(2 * MIB, DEVICE, **arguments)
