"""The region of gpuwm.Blocks: its memory, and how it is made, opened, closed and removed."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Daemon, asleep, eventually, on_host
from test_fork import in_child
from test_transport_blocks import BYTES, COUNT, figures, fill, key, keys

import gpuwm
from gpuwm.transport import Held, Reserved
from gpuwm.transport import blocks as made_in

pytestmark = on_host


@pytest.fixture
def blocks(daemon: Daemon) -> Iterator[gpuwm.Blocks]:
    with gpuwm.Blocks.create("cache", blocks=COUNT, block_bytes=BYTES) as made:
        yield made
        gc.collect()
    gpuwm.Blocks.remove("cache")


# ---- their memory ------------------------------------------------------------------------------


def test_the_memory_is_one_tensor(blocks: gpuwm.Blocks) -> None:
    tensor, array = blocks.tensor(), blocks.numpy()
    assert (tensor.dtype, tensor.shape, tensor.device.type) == (torch.uint8, (COUNT, BYTES), "cpu")
    assert (array.dtype, array.shape) == (np.dtype("uint8"), (COUNT, BYTES))
    tensor[3] = 7
    array[4] = 8
    blocks.memoryview(5)[:] = b"\x09" * BYTES
    assert [int(row.sum()) for row in tensor] == [0, 0, 0, *(n * BYTES for n in (7, 8, 9)), 0, 0]
    assert blocks.tensor().data_ptr() == tensor.data_ptr() == array.ctypes.data
    for number in (-1, COUNT):
        with pytest.raises(gpuwm.Invalid, match=f"number={number}: 0 to {COUNT - 1}"):
            blocks.memoryview(number)


USES: dict[str, Callable[[gpuwm.Blocks], object]] = {
    "tensor": lambda blocks: blocks.tensor()[3],
    "array": lambda blocks: blocks.numpy()[:2],
    "memoryview": lambda blocks: blocks.memoryview(1)[5:],
    "held": lambda blocks: blocks.hold(key(1)),
    "reserved": lambda blocks: blocks.reserve(key(2)),
}


def test_a_close_that_fails_disturbs_no_other_thread(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    held = blocks.hold(key(1))
    reserved = blocks.reserve(key(2))
    later: list[Held] = []
    waiter = threading.Thread(target=lambda: later.append(blocks.hold(key(2), 60)))
    waiter.start()
    eventually(asleep)
    with pytest.raises(gpuwm.Busy):
        blocks.close()
    held.release()
    reserved.publish()
    waiter.join()
    later[0].release()
    assert figures(blocks) == (6, 0, 2, 0)


@pytest.mark.parametrize("use", USES)
def test_what_lives_keeps_it_open(use: str, blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    alive = USES[use](blocks)
    with pytest.raises(gpuwm.Busy, match="block cache cache can't be closed: tensors of it"):
        blocks.close()
    assert blocks.find(key(1)) == 1
    if isinstance(alive, Held | Reserved):
        alive._give(alive._back)  # the object may live on
    else:
        del alive
    blocks.close()
    for call in (blocks.figures, blocks.tensor, lambda: blocks.find(key(1))):
        with pytest.raises(gpuwm.Closed, match="the block cache was closed"):
            call()
    with gpuwm.Blocks.open("cache") as again:
        assert again.find(key(1)) == 1


def test_a_tensor_outlives_the_block(daemon: Daemon) -> None:
    with gpuwm.Blocks.create("outlived", blocks=COUNT, block_bytes=BYTES) as blocks:
        tensor = blocks.tensor()
        held = blocks.reserve(key(1))
    tensor[0] = 5
    held.publish()
    with gpuwm.Blocks.open("outlived") as again:
        assert again.tensor()[0].tolist() == [5] * BYTES
        assert again.hold(key(1)).numbers == held.numbers
    gpuwm.Blocks.remove("outlived")


# ---- making and opening ------------------------------------------------------------------------


def test_it_says_what_it_is(blocks: gpuwm.Blocks) -> None:
    assert (blocks.name, blocks.device) == ("cache", "host")
    assert (blocks.blocks, blocks.block_bytes, blocks.slot) == (COUNT, BYTES, 0)
    assert repr(blocks) == f"<gpuwm.Blocks cache on host: {COUNT} blocks of {BYTES:,} bytes>"
    with pytest.raises(TypeError, match=r"Blocks\.open"):
        pickle.dumps(blocks)
    with pytest.raises(gpuwm.Exists):
        gpuwm.Blocks.create("cache", blocks=COUNT, block_bytes=BYTES)
    with gpuwm.Blocks.open(blocks.id) as again:
        assert again.id == blocks.id


@pytest.mark.parametrize(
    "wrong",
    [{"blocks": 0}, {"blocks": 262_145}, {"block_bytes": 0}, {"block_bytes": 100}, {"blocks": -1}],
)
def test_wrong_sizes(wrong: dict[str, int], daemon: Daemon) -> None:
    options: dict[str, Any] = {"blocks": COUNT, "block_bytes": BYTES, **wrong}
    with pytest.raises(gpuwm.Invalid):
        gpuwm.Blocks.create("wrong", **options)
    with pytest.raises(TypeError):
        gpuwm.Blocks.create("wrong", blocks="8", block_bytes=BYTES)  # type: ignore[arg-type]


def test_it_is_opened_or_made(daemon: Daemon) -> None:
    def made(name: str, **options: Any) -> gpuwm.Blocks:
        wanted = {"blocks": COUNT, "block_bytes": BYTES, **options}
        return gpuwm.Blocks.open_or_create(name, **wanted)

    with made("either") as first, made("either", blocks=3) as second:
        assert first.id == second.id
        assert second.blocks == COUNT
        with pytest.raises(gpuwm.Mismatch, match="has blocks of 256 bytes on host, and 512 bytes"):
            made("either", block_bytes=512)
        assert fill(second, 1) != [None]
    gpuwm.Blocks.remove("either")
    with made("either", block_bytes=512) as third:
        assert (third.id == first.id, third.block_bytes) == (False, 512)
    gpuwm.Blocks.remove("either")


def test_a_name_of_a_region_that_this_user_does_not_see(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def opened(*arguments: Any, **named: Any) -> gpuwm.Blocks:
        raise gpuwm.NotFound("there is no such thing")

    def create(*arguments: Any, **named: Any) -> gpuwm.Blocks:
        tries.append(named)
        raise gpuwm.Exists("the name is taken")

    monkeypatch.setattr(gpuwm.Blocks, "open", opened)
    monkeypatch.setattr(gpuwm.Blocks, "create", create)
    monkeypatch.setattr(made_in, "_MADE_S", 0.1)
    with pytest.raises(gpuwm.Exists):
        gpuwm.Blocks.open_or_create("hidden", blocks=COUNT, block_bytes=BYTES)
    assert len(tries) <= 0.1 / made_in._NAP_S + 1  # it naps between two tries


def test_each_kind_is_opened_by_its_own(daemon: Daemon) -> None:
    kinds: dict[str, tuple[Any, str]] = {
        "a-pool": (gpuwm.Pool, "gpuwm.Pool.open"),
        "a-queue": (gpuwm.Queue, "gpuwm.Queue.open"),
        "a-cache": (gpuwm.Blocks, "gpuwm.Blocks.open"),
        "a-scratch": (gpuwm.Scratch, "gpuwm.Scratch.open"),
    }
    made = (
        gpuwm.Pool(4096, name="a-pool"),
        gpuwm.Queue(2, name="a-queue"),
        gpuwm.Blocks.create("a-cache", blocks=COUNT, block_bytes=BYTES),
        gpuwm.Scratch.create("a-scratch", bytes=4096),
    )
    for name, (kind, said) in kinds.items():
        for other, _ in kinds.values():
            if other is kind:
                other.open(name).close()
                continue
            with pytest.raises(gpuwm.Invalid, match=f"^{name} is no .*: {said}"):
                other.open(name)
    for region in made:
        region.close()
    gpuwm.Blocks.remove("a-cache")
    gpuwm.Scratch.remove("a-scratch")


def test_a_look_needs_no_memory(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    blocks.close()
    with gpuwm.Blocks.open("cache", look=True) as looks:
        with looks.hold(keys(1, 2)) as held:
            assert len(held) == looks.find(keys(1, 2)) == looks.figures().held == 1
            these = held.these
        for call in (looks.tensor, looks.numpy, lambda: looks.memoryview(0)):
            with pytest.raises(gpuwm.Unsupported, match="opened with look=True"):
                call()
        with pytest.raises(gpuwm.Refused):
            looks.reserve(key(3))
        held = looks.hold(key(1))
        with pytest.raises(gpuwm.Busy):
            gpuwm.Blocks.open("cache")
        held.release()
        with gpuwm.Blocks.open("cache") as writes:
            fill(writes, 3)
            assert looks.find(key(3)) == 1  # it goes on with the memory mapped
            assert looks.hold_these(these).numbers == writes.hold(key(1)).numbers
        assert looks.find(key(3)) == 1


def test_a_reader_writes_nothing(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    blocks.close()
    with gpuwm.Blocks.open("cache", write=False) as reads:
        held = reads.hold(key(1))
        number = held.numbers[0]
        assert reads.tensor()[number].tolist() == [1] * BYTES
        assert not reads.numpy().flags.writeable
        with pytest.raises(TypeError, match="read-only"):
            reads.memoryview(number)[0] = 5
        with pytest.raises(gpuwm.Refused):
            reads.reserve(key(2))
        held.release()
        with pytest.raises(gpuwm.Refused):
            reads.drop(key(1))


def test_streams_are_of_gpus(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    reserved, held = blocks.reserve(key(2)), blocks.hold(key(1))
    for call in (reserved.publish, held.release):
        with pytest.raises(gpuwm.Unsupported):
            call(1)
        for wrong in ("1", True, 1.5):
            with pytest.raises(TypeError, match="stream="):
                call(wrong)
        call()
    assert figures(blocks) == (6, 0, 2, 0)
    with pytest.raises(gpuwm.Unsupported):
        blocks.reach("GPU-00000000-0000-0000-0000-000000000000")


def test_it_is_removed(daemon: Daemon) -> None:
    blocks = gpuwm.Blocks.create("removed", blocks=COUNT, block_bytes=BYTES)
    fill(blocks, 1)
    held = blocks.hold(key(1))
    gpuwm.Blocks.remove("removed")
    for call in (blocks.check, lambda: blocks.reserve(key(2)), lambda: blocks.hold(key(1))):
        with pytest.raises(gpuwm.Ended):
            call()
    held.release()
    blocks.close()
    with pytest.raises((gpuwm.NotFound, gpuwm.Ended)):
        gpuwm.Blocks.open("removed")


def test_a_forked_child_opens_by_itself(blocks: gpuwm.Blocks) -> None:
    fill(blocks, 1)
    held, reserved, tensor = blocks.hold(key(1)), blocks.reserve(key(2)), blocks.tensor()

    def body() -> None:
        calls: tuple[Callable[[], object], ...] = (
            *(blocks.figures, blocks.tensor, blocks.close, held.release, reserved.publish),
            *(lambda: blocks.hold(key(1)), lambda: blocks.find(key(1))),
        )
        for call in calls:
            with pytest.raises(gpuwm.InChild):
                call()
        with gpuwm.Blocks.open("cache") as own:
            assert own.find(key(1)) == 1
            assert own.hold(key(1)).numbers == held.numbers

    in_child(body)
    assert figures(blocks) == (6, 1, 0, 1)
    assert tensor[held.numbers[0]].tolist() == [1] * BYTES
