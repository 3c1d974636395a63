"""Blocks of a GPU are published and released in streams: on the stand-in for the driver, which
torch can't reach, so that no byte is looked at."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Daemon, asleep, eventually, on_fakecuda, once
from test_transport_blocks import COUNT, figures, key, keys
from test_transport_streams import new_stream

import gpuwm
from gpuwm.transport import memory, of_torch

pytestmark = on_fakecuda
BYTES = 1 << 18  # of a block: a GPU's memory comes in pieces of 2 MiB
CAPTURE_RELAXED = 2


class Stream:
    """As torch has it. What is put into it behind `stop` waits for `go_on`."""

    def __init__(self) -> None:
        self.cuda_stream = new_stream()
        self.driver = ctypes.CDLL("libcuda.so.1")
        self._open = threading.Event()
        self._wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self._open.wait(60) and None)

    def stop(self) -> None:
        self.call("cuLaunchHostFunc", self._wait, None)

    def go_on(self) -> None:
        self._open.set()

    def call(self, name: str, *arguments: Any) -> None:
        assert self.driver[name](ctypes.c_void_p(self.cuda_stream), *arguments) == 0


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def blocks(daemon: Daemon, stream: Stream) -> Iterator[gpuwm.Blocks]:
    made = gpuwm.Blocks.create("gpu", device=daemon.device, blocks=COUNT, block_bytes=BYTES)
    with made:
        yield made
        stream.go_on()
        if not made._ended:
            eventually(lambda: figures(made)[1] == figures(made)[3] == 0)
    gpuwm.Blocks.remove("gpu")


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch, stream: Stream) -> list[str]:
    """torch's current stream is this one. The devices that it was asked to wait for."""
    waited: list[str] = []
    monkeypatch.setattr(memory, "_torch_is_there", lambda: True)
    monkeypatch.setattr(of_torch, "stream", lambda _device: stream.cuda_stream)
    monkeypatch.setattr(of_torch, "synchronize", waited.append)
    return waited


def fill(blocks: gpuwm.Blocks, *numbers: int) -> None:
    blocks.reserve(keys(*numbers)).publish()


@pytest.mark.parametrize("as_number", [True, False])
def test_a_block_is_there_when_the_stream_has_got_there(
    as_number: bool, blocks: gpuwm.Blocks, stream: Stream
) -> None:
    given = stream.cuda_stream if as_number else stream
    stream.stop()
    reserved = blocks.reserve(keys(1, 2))
    reserved.publish(given)
    with pytest.raises(gpuwm.Closed):
        reserved.abandon()
    assert len(blocks.hold(keys(1, 2), wait=0.3)) == 0
    assert figures(blocks) == (COUNT - 2, 2, 0, 0)
    stream.go_on()
    with blocks.hold(keys(1, 2), wait=60) as held:
        assert held.numbers == reserved.numbers


def test_a_release_counts_when_the_stream_has_got_there(
    blocks: gpuwm.Blocks, stream: Stream
) -> None:
    fill(blocks, 1, 2)
    stream.stop()
    held = blocks.hold(keys(1, 2))
    held.release(stream)
    with pytest.raises(gpuwm.Closed):
        held.release(stream)
    assert (blocks.drop(keys(1, 2)), figures(blocks)[3]) == (0, 2)
    stream.go_on()
    eventually(lambda: figures(blocks)[3] == 0)
    assert blocks.drop(keys(1, 2)) == 2


def test_a_block_of_a_with_statement_ends_in_the_stream(
    blocks: gpuwm.Blocks, stream: Stream, in_torch: list[str]
) -> None:
    fill(blocks, 1)
    stream.stop()
    with blocks.hold(key(1)):
        pass
    assert figures(blocks)[3] == 1
    stream.go_on()
    eventually(lambda: figures(blocks)[3] == 0)
    assert in_torch == []


def test_a_process_that_looks_has_no_streams(
    blocks: gpuwm.Blocks, stream: Stream, in_torch: list[str]
) -> None:
    fill(blocks, 1)
    blocks.close()
    with gpuwm.Blocks.open("gpu", look=True) as looks:
        with looks.hold(key(1)):
            assert figures(looks)[3] == 1
        held = looks.hold(key(1))
        del held
        assert figures(looks)[3] == 0
    assert in_torch == []


def test_what_was_not_published_waits_for_the_gpu(
    blocks: gpuwm.Blocks, in_torch: list[str]
) -> None:
    with blocks.reserve(key(1)):
        pass
    assert in_torch == [blocks.device]
    reserved = blocks.reserve(key(1))
    del reserved
    assert in_torch == [blocks.device] * 2
    fill(blocks, 1)
    held = blocks.hold(key(1))
    del held
    assert in_torch == [blocks.device] * 3
    assert figures(blocks) == (COUNT - 1, 0, 1, 0)


def test_a_neighbour_that_reads_is_waited_for(blocks: gpuwm.Blocks, in_torch: list[str]) -> None:
    blocks.reach(blocks.device)
    fill(blocks, 1)
    with blocks.hold(key(1)):
        pass
    assert (figures(blocks)[3], in_torch) == (0, [blocks.device] * 2)


def test_a_capture_is_refused(blocks: gpuwm.Blocks, stream: Stream) -> None:
    fill(blocks, 1)
    reserved, held = blocks.reserve(key(2)), blocks.hold(key(1))
    stream.call("cuStreamBeginCapture_v2", CAPTURE_RELAXED)
    for call in (reserved.publish, held.release):
        with pytest.raises(gpuwm.Busy, match="captured"):
            call(stream)
    graph = ctypes.c_void_p()
    stream.call("cuStreamEndCapture", ctypes.byref(graph))
    reserved.publish(stream)
    held.release(stream)


def test_get_or_put_publishes_in_the_stream(
    blocks: gpuwm.Blocks, stream: Stream, in_torch: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of the tensor, which the stand-in's memory can't have.
    monkeypatch.setattr(of_torch, "of_gpu", lambda _memory, _device: range(COUNT))
    made: list[int] = []
    stream.stop()
    once(asleep, stream.go_on)
    with blocks.get_or_put(key(1), made.append) as held:
        assert held.numbers == made
    eventually(lambda: figures(blocks)[3] == 0)
    with blocks.get_or_put(key(1), made.append) as held:
        assert held.numbers == made


def test_the_memory_is_told_to_torch(blocks: gpuwm.Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_torch, "of_gpu", lambda memory, device: (memory, device))
    memory, device = blocks.tensor()
    told = memory.__cuda_array_interface__
    assert (device, told["shape"], told["typestr"]) == (blocks.device, (COUNT, BYTES), "|u1")
    assert told["data"] == (blocks._region.memory()[0], False)
    for call in (blocks.numpy, lambda: blocks.memoryview(0)):
        with pytest.raises(gpuwm.Unsupported, match=r"where the CPU can't read: use \.tensor\(\)"):
            call()
    with pytest.raises(gpuwm.Busy):
        blocks.close()
    del memory


def test_another_device_is_a_mismatch(blocks: gpuwm.Blocks) -> None:
    with pytest.raises(gpuwm.Mismatch, match=f"on {blocks.device}, and {BYTES:,} bytes on host"):
        gpuwm.Blocks.open_or_create("gpu", blocks=COUNT, block_bytes=BYTES)


def test_a_look_needs_no_context(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    blocks.close()
    with gpuwm.Blocks.open("gpu", look=True) as looks, looks.hold(key(1)) as held:
        assert looks.device == blocks.device
        assert len(held) == 1
        with pytest.raises(gpuwm.Unsupported, match="opened with look=True"):
            looks.tensor()


def test_scratch_of_a_gpu(daemon: Daemon) -> None:
    with gpuwm.Scratch.create("acts", device=daemon.device, bytes=1, clear=True) as scratch:
        assert scratch.nbytes == 2 << 20
        scratch.acquire()
        scratch.release()
        with pytest.raises(gpuwm.Unsupported, match="the CPU can't read"):
            scratch.memoryview()
    gpuwm.Scratch.remove("acts")
