"""Blocks that several processes fill and hold, and processes that are killed meanwhile."""

from __future__ import annotations

import gc
import pathlib
from collections.abc import Iterator

import pytest
from conftest import Daemon, asleep, eventually, on_host, once, running
from other_processes import Peer, peers
from test_transport_blocks import BYTES, COUNT, figures, fill, key, keys

import gpuwm

pytestmark = on_host


@pytest.fixture
def blocks(daemon: Daemon) -> Iterator[gpuwm.Blocks]:
    with gpuwm.Blocks.create("shared", blocks=COUNT, block_bytes=BYTES) as made:
        yield made
        gc.collect()
    gpuwm.Blocks.remove("shared")


def opened(peer: Peer) -> Peer:
    peer.run("blocks = gpuwm.Blocks.open('shared')")
    return peer


def test_what_one_fills_another_reads(blocks: gpuwm.Blocks) -> None:
    with peers(1) as (peer,):
        opened(peer)
        fill(blocks, 1, 2)
        assert peer.run("held = blocks.hold(keys); held.numbers", keys=keys(2, 1)) is None
        numbers = peer.run("held.numbers")
        assert peer.run("blocks.tensor()[held.numbers, 0].tolist()") == [2, 1]
        these = peer.run("held.these")
        with blocks.hold_these(these) as held:
            assert held.numbers == numbers
            peer.run("held.release()")
            assert held.keys() == keys(2, 1)


def test_a_look_names_blocks_for_another_process(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1, 2)
    with peers(1) as (peer,):
        peer.run("blocks = gpuwm.Blocks.open('shared', look=True)")
        these = peer.run("(held := blocks.hold(keys)).these", keys=keys(1, 2, 3))
        with blocks.hold_these(these) as held:
            peer.run("held.release()")
            assert [blocks.memoryview(number)[0] for number in held.numbers] == [1, 2]


def test_a_killed_writer_leaves_free_blocks(blocks: gpuwm.Blocks) -> None:
    with peers(1) as (writer,):
        opened(writer)
        writer.run("r = blocks.reserve(keys)", keys=keys(1, 2, 3))
        fill(blocks, 4)
        assert figures(blocks) == (4, 3, 1, 0)
        once(asleep, writer.kill)
        # Whoever waits for its blocks learns that they will not come.
        assert len(blocks.hold(keys(4, 1), wait=60)) == 1
        eventually(lambda: figures(blocks) == (7, 0, 1, 0))
        assert None not in fill(blocks, 1, 2, 3)


def test_a_killed_reader_lets_blocks_go(blocks: gpuwm.Blocks) -> None:
    fill(blocks, *range(COUNT))
    with peers(1) as (reader,):
        opened(reader)
        reader.run("held = blocks.hold(keys)", keys=keys(*range(COUNT)))
        with pytest.raises(gpuwm.PoolFull, match=str(reader.pid)):
            blocks.reserve(key(20))
        assert blocks.drop(key(1)) == 0
        once(asleep, reader.kill)
        assert blocks.reserve(key(20), wait=60).numbers[0] is not None
        eventually(lambda: figures(blocks)[3] == 0)


def test_what_a_dead_process_published_stays(blocks: gpuwm.Blocks) -> None:
    with peers(2) as (writer, reader):
        opened(writer)
        opened(reader)
        writer.run("r = blocks.reserve(keys)", keys=keys(1, 2))
        writer.run("for n in r.numbers: blocks.memoryview(n)[:] = bytes([7]) * 256")
        writer.run("r.publish()")
        writer.kill()
        assert reader.run("blocks.hold(keys, wait=5).numbers", keys=keys(1, 2)) is not None
        with blocks.hold(keys(1, 2)) as held:
            assert blocks.tensor()[held.numbers].eq(7).all()


_GET = """
import os, time
made = 0
def make(memory):
    global made
    made += 1
    while not os.path.exists(go):
        time.sleep(0.005)
    memory[:] = bytes([n]) * 256
"""


def test_one_writes_and_four_read(blocks: gpuwm.Blocks, tmp_path: pathlib.Path) -> None:
    with peers(4) as readers:
        for peer in readers:
            opened(peer).run(_GET)
        for n in range(5):
            go = tmp_path / str(n)
            for peer in readers:
                peer.start("held = blocks.get_or_put(key, make)", key=key(n), n=n, go=go)
            eventually(lambda: sum(asleep(peer.pid) for peer in readers) == 3)
            go.touch()
            for peer in readers:
                peer.result()
            places = [peer.run("held.numbers[0]") for peer in readers]
            assert len(set(places)) == 1  # they read one block, where it lies
            assert blocks.memoryview(places[0]) == bytes([n]) * BYTES
            assert figures(blocks)[3] == 1
            for peer in readers:
                peer.run("held.release(); del held")
        assert sum(peer.run("made") for peer in readers) == 5


def test_the_one_that_makes_it_is_killed(blocks: gpuwm.Blocks, tmp_path: pathlib.Path) -> None:
    with peers(2) as (killed, lives):
        for peer in (killed, lives):
            opened(peer).run(_GET)
        killed.run("make = lambda memory: time.sleep(600)")
        killed.start("blocks.get_or_put(key, make)", key=key(1), n=1)
        eventually(lambda: figures(blocks)[1] == 1)
        lives.start("blocks.get_or_put(key, make).numbers", key=key(1), n=2, go=tmp_path)
        eventually(lambda: asleep(lives.pid))
        killed.kill()
        (number,) = lives.result()
        assert blocks.memoryview(number) == b"\x02" * BYTES
        assert lives.run("made") == 1


_ANY = """
def opened_or_made(name):
    with gpuwm.Blocks.open_or_create(name, blocks=8, block_bytes=256) as blocks:
        return blocks.id
"""


def test_many_open_or_make_it_at_once(daemon: Daemon) -> None:
    with peers(4) as several:
        for peer in several:
            peer.run(_ANY)
        for n in range(5):
            name = f"any-{n}"
            for peer in several:
                peer.start(f"opened_or_made({name!r})")
            assert len({peer.result() for peer in several}) == 1
            gpuwm.Blocks.remove(name)


def test_blocks_go_on_without_gpuwmd() -> None:
    with running() as daemon, peers(1) as (peer,):
        blocks = gpuwm.Blocks.create("shared", blocks=COUNT, block_bytes=BYTES)
        opened(peer)
        daemon.kill()
        fill(blocks, 1, 2)
        assert len(peer.run("(held := blocks.hold(keys)).numbers", keys=keys(1, 2, 3))) == 2
        assert figures(blocks) == (6, 0, 0, 2)
        peer.run("held.release()")
        peer.run("(r := blocks.reserve(keys)).publish()", keys=keys(3, 4))
        assert blocks.find(keys(1, 2, 3, 4)) == 4
        assert blocks.drop(keys(1, 2, 3, 4)) == 4
        # Closing would wait for the next gpuwmd.
