"""gpuwm.Scratch: one process holds the memory at a time, in the order of asking."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import Daemon, eventually, in_calls, interrupted, on_host, once, running
from other_processes import Peer, peers
from test_fork import in_child

import gpuwm

pytestmark = on_host
BYTES = 1 << 16


@pytest.fixture
def scratch(daemon: Daemon) -> Iterator[gpuwm.Scratch]:
    with gpuwm.Scratch.create("acts", bytes=BYTES) as made:
        yield made
        gc.collect()
    gpuwm.Scratch.remove("acts")


@pytest.fixture(scope="module")
def peer(daemon: Daemon) -> Iterator[Peer]:
    with peers(1) as (one,):
        yield one


def opened(peer: Peer) -> Peer:
    peer.run("scratch = gpuwm.Scratch.open('acts')")
    return peer


def test_it_says_what_it_is(scratch: gpuwm.Scratch) -> None:
    assert (scratch.name, scratch.device, scratch.nbytes) == ("acts", "host", BYTES)
    assert not scratch.clear
    assert repr(scratch) == f"<gpuwm.Scratch acts on host: {BYTES:,} bytes>"
    with pytest.raises(TypeError, match=r"Scratch\.open"):
        pickle.dumps(scratch)
    with pytest.raises(gpuwm.Exists):
        gpuwm.Scratch.create("acts", bytes=BYTES)
    with pytest.raises(gpuwm.Invalid):
        gpuwm.Scratch.create("none", bytes=0)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.Scratch.open("nobody-s")
    with pytest.raises(gpuwm.Invalid, match="wait=-1"):
        scratch.acquire(-1)


def test_one_process_holds_it(scratch: gpuwm.Scratch, peer: Peer) -> None:
    opened(peer).run("scratch.acquire()")
    for wait in (None, 0, 0.3):
        with pytest.raises(gpuwm.TimedOut, match=str(peer.pid)):
            scratch.acquire(wait)
    peer.run("scratch.tensor()[5] = 7; scratch.release()")
    with scratch.held() as memory:
        assert (memory[5], len(memory)) == (7, BYTES)
        with pytest.raises(gpuwm.TimedOut, match=str(os.getpid())):
            peer.run("scratch.acquire(0.1)")
    peer.run("scratch.acquire(None); scratch.release(); scratch.close()")


def test_it_is_held_and_given_back_once(scratch: gpuwm.Scratch) -> None:
    with pytest.raises(gpuwm.Already):
        scratch.release()
    scratch.acquire()
    with pytest.raises(gpuwm.Already):
        scratch.acquire()
    scratch.release()
    with pytest.raises(gpuwm.Already):
        scratch.release()


def test_who_closes_it_gives_it_back(daemon: Daemon, peer: Peer) -> None:
    scratch = gpuwm.Scratch.create("closed", bytes=BYTES)
    scratch.acquire()
    scratch.close()
    peer.run("own = gpuwm.Scratch.open('closed'); own.acquire(60); own.close(); del own")
    gpuwm.Scratch.remove("closed")


def test_it_is_handed_on_in_the_order_of_asking(scratch: gpuwm.Scratch) -> None:
    with peers(3) as several:
        scratch.acquire()
        for n, each in enumerate(several):
            opened(each)
            each.run("import time")
            each.start("scratch.acquire() or (time.monotonic(), scratch.release())[0]")
            in_line(scratch, n + 1)
        scratch.release()
        times = [each.result() for each in several]
        assert times == sorted(times)


def waiting(scratch: gpuwm.Scratch) -> int:
    """How many ask for it, as gpuwmctl tells."""
    program = f"{os.environ['GPUWM_BUILD']}/bin/gpuwmctl"
    said = subprocess.run(
        [program, "-o", "json", "regions", scratch.id], capture_output=True, text=True, check=True
    )
    found: int = json.loads(said.stdout)["regions"][0]["waiting"]
    return found


def in_line(scratch: gpuwm.Scratch, count: int) -> None:
    """Returns when so many ask for it."""
    eventually(lambda: waiting(scratch) == count)


def test_a_killed_holder_hands_it_on(scratch: gpuwm.Scratch) -> None:
    with peers(1) as (killed,):
        opened(killed).run("scratch.acquire()")
        once(lambda: waiting(scratch) == 1, killed.kill)
        scratch.acquire(60)
        scratch.release()


def test_it_is_cleared_for_another(daemon: Daemon, peer: Peer) -> None:
    with gpuwm.Scratch.create("clean", bytes=BYTES, clear=True) as scratch:
        assert scratch.clear
        with scratch.held() as memory:
            assert isinstance(memory, memoryview)
            memory[:3] = b"abc"
        with scratch.held() as memory:
            assert memory[:3] == b"abc"  # nobody else has held it
        peer.run("own = gpuwm.Scratch.open('clean'); own.acquire()")
        assert peer.run("int(own.tensor().sum())") == 0
        peer.run("own.memoryview()[0] = 5; own.release(); own.close(); del own")
        with scratch.held() as memory:
            assert not any(memory)
    gpuwm.Scratch.remove("clean")


def test_the_error_of_a_block_gives_it_back(scratch: gpuwm.Scratch) -> None:
    def use() -> None:
        with scratch.held() as memory:
            assert isinstance(memory, memoryview)
            kept.append(memory)
            raise ZeroDivisionError

    kept: list[memoryview] = []
    with pytest.raises(ZeroDivisionError):
        use()
    with pytest.raises(ValueError, match="released"):
        kept[0][0]
    with scratch.held(0) as memory:
        assert isinstance(memory, memoryview)
        kept.append(memory[:5])  # which lives on
    with pytest.raises(gpuwm.Busy, match="scratch memory acts can't be closed: tensors of it are"):
        scratch.close()
    kept.clear()


def test_a_tensor_keeps_it_open(scratch: gpuwm.Scratch) -> None:
    tensor = scratch.tensor()
    assert (tensor.shape, tensor.dtype) == ((BYTES,), torch.uint8)
    with pytest.raises(gpuwm.Busy):
        scratch.close()
    del tensor
    scratch.close()
    with pytest.raises(gpuwm.Closed, match="the scratch memory was closed"):
        scratch.acquire()
    with gpuwm.Scratch.open("acts"):
        pass


def test_ctrl_c_ends_the_wait(scratch: gpuwm.Scratch, peer: Peer) -> None:
    opened(peer).run("scratch.acquire()")
    others = set(in_calls())
    interrupted(scratch.acquire, lambda: peer.run("scratch.release()"))
    peer.run("scratch.release()")
    eventually(lambda: not set(in_calls()) - others)  # its turn has come, and was given back
    peer.run("scratch.acquire(60); scratch.release(); scratch.close()")
    with scratch.held():
        pass


def test_asyncio_waits_for_it(scratch: gpuwm.Scratch, peer: Peer) -> None:
    async def flow() -> None:
        opened(peer).run("scratch.acquire()")
        with pytest.raises(gpuwm.TimedOut):
            await scratch.acquire_async(0.1)
        taking = asyncio.create_task(scratch.acquire_async())
        await asyncio.to_thread(in_line, scratch, 1)
        assert not taking.done()
        peer.run("scratch.release()")
        await taking
        scratch.release()
        peer.run("scratch.acquire()")
        taking = asyncio.create_task(scratch.acquire_async())
        await asyncio.to_thread(in_line, scratch, 1)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking

    asyncio.run(flow())
    peer.run("scratch.release()")
    eventually(lambda: not in_calls())
    peer.run("scratch.acquire(60); scratch.release(); scratch.close()")


_TURNS = """
def turns(count):
    wrong = 0
    for _ in range(count):
        with scratch.held(60) as memory:
            wrong += memory[0] != 0  # somebody else is in the block
            memory[0] = 1
            memory[8:16] = (int.from_bytes(memory[8:16], "little") + 1).to_bytes(8, "little")
            memory[0] = 0
    return wrong
"""


def test_two_processes_alternate(scratch: gpuwm.Scratch) -> None:
    alternate(scratch, lambda: None)


def alternate(scratch: gpuwm.Scratch, meanwhile: Callable[[], None]) -> None:
    with peers(2) as several:
        for each in several:
            opened(each).run(_TURNS)
        for each in several:
            each.start("turns(1000)")
        meanwhile()
        assert [each.result() for each in several] == [0, 0]
        assert int.from_bytes(scratch.memoryview()[8:16], "little") == 2000
        assert several[0].run("scratch.nbytes") == BYTES


def test_a_forked_child_opens_by_itself(scratch: gpuwm.Scratch) -> None:
    scratch.acquire()

    def body() -> None:
        for call in (scratch.acquire, scratch.release, scratch.tensor, scratch.memoryview):
            with pytest.raises(gpuwm.InChild):
                call()
        with gpuwm.Scratch.open("acts") as own, pytest.raises(gpuwm.TimedOut):
            own.acquire(0.1)

    in_child(body)
    scratch.release()


def test_a_thread_that_waits_is_the_only_one(scratch: gpuwm.Scratch, peer: Peer) -> None:
    opened(peer).run("scratch.acquire()")
    thread = threading.Thread(target=scratch.acquire, args=(60,))
    thread.start()
    in_line(scratch, 1)
    with pytest.raises(gpuwm.Already):
        scratch.acquire(0.1)
    peer.run("scratch.release(); scratch.close()")
    thread.join(60)
    scratch.release()


def test_gpuwmd_is_killed_while_they_alternate() -> None:
    with running(keeper=True) as daemon, gpuwm.Scratch.create("acts", bytes=BYTES) as scratch:

        def kills() -> None:
            for _ in range(3):
                time.sleep(0.3)
                daemon.restart()

        alternate(scratch, kills)
        scratch.acquire(60)
        daemon.restart()
        scratch.release()
