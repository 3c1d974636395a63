"""Blocks and scratch memory as tensors of torch, on host or on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import DEVICE, Daemon, by_torch, eventually
from other_processes import Peer
from test_transport_blocks import COUNT, figures, key, keys

import gpuwm

pytestmark = by_torch
BYTES = 1 << 18  # of a block: a GPU's memory comes in pieces of 2 MiB


@pytest.fixture
def blocks(daemon: Daemon) -> Iterator[gpuwm.Blocks]:
    made = gpuwm.Blocks.create("torch", device=DEVICE, blocks=COUNT, block_bytes=BYTES)
    with made:
        yield made
        gc.collect()
    gpuwm.Blocks.remove("torch")


def stream() -> Any:
    """None on host, where there are no streams."""
    return None if DEVICE == "cpu" else torch.cuda.current_stream()


def test_tensors_are_over_the_blocks(blocks: gpuwm.Blocks) -> None:
    tensor = blocks.tensor()
    assert (tensor.dtype, tensor.shape) == (torch.uint8, (COUNT, BYTES))
    assert (tensor.device.type, tensor.is_contiguous()) == (DEVICE, True)
    assert tensor.data_ptr() == blocks.tensor().data_ptr() == blocks._region.memory()[0]
    part = tensor[3].view(torch.bfloat16)[5:]
    del tensor
    with pytest.raises(gpuwm.Busy, match="tensors of it are alive"):
        blocks.close()
    del part
    blocks.close()


def test_what_a_stream_writes_another_process_reads(blocks: gpuwm.Blocks, peer: Peer) -> None:
    peer.run("blocks = gpuwm.Blocks.open('torch'); rows = blocks.tensor()")
    rows = blocks.tensor().view(torch.int32)
    for turn in range(20):
        wanted = keys(turn, turn + 1000, turn + 2000)
        with blocks.reserve(wanted) as reserved:
            for n, number in enumerate(reserved.numbers):
                assert number is not None
                rows[number].fill_(turn * 3 + n)
            reserved.publish(stream())
        peer.run("held = blocks.hold(keys, wait=60)", keys=wanted)
        read = "[rows[number].view(torch.int32).unique().tolist() for number in held.numbers]"
        assert peer.run(read) == [[turn * 3], [turn * 3 + 1], [turn * 3 + 2]]
        peer.run("held.__exit__()")
    eventually(lambda: figures(blocks)[1:] == (0, COUNT, 0))
    peer.run("del rows, held; blocks.close()")


def test_get_or_put_writes_where_it_lies(blocks: gpuwm.Blocks) -> None:
    def make(memory: Any) -> None:
        there = torch.frombuffer(memory, dtype=torch.uint8) if DEVICE == "cpu" else memory
        there.fill_(7)
        made.append(len(there))

    made: list[int] = []
    for _ in range(2):
        with blocks.get_or_put(key(1), make) as held:
            assert blocks.tensor()[held.numbers[0]].eq(7).all()
    assert made == [BYTES]


def test_scratch_is_cleared_for_another(daemon: Daemon, peer: Peer) -> None:
    with gpuwm.Scratch.create("torch-s", device=DEVICE, bytes=2 << 20, clear=True) as scratch:
        with scratch.held():
            scratch.tensor().fill_(5)
        peer.run("own = gpuwm.Scratch.open('torch-s'); own.acquire(60); mine = own.tensor()")
        assert peer.run("int(mine.count_nonzero())") == 0
        peer.run("mine.fill_(6); own.release()")
        with scratch.held(60):
            assert not scratch.tensor().any()
        peer.run("del mine; own.close()")
    gpuwm.Scratch.remove("torch-s")
