"""Pools and queues that are opened and closed: names that are used again, `with` blocks, and
what is checked before a tensor is taken."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEVICE, Daemon, by_torch, eventually, on_host
from other_processes import Peer, peers

import gpuwm

pytestmark = by_torch
ROOM = 2 << 20  # of a pool: a GPU's memory comes in such pieces


def make(peer: Peer) -> None:
    peer.run(f"pool = gpuwm.Pool({ROOM}, {DEVICE!r}, name='again')")
    peer.run("q = gpuwm.Queue(2, name='again-q')")


def test_a_name_is_of_the_region_that_lives(daemon: Daemon) -> None:
    with peers(2) as (first, second):
        make(first)
        old = gpuwm.Pool.open("again"), gpuwm.Queue.open("again-q")
        first.kill()
        eventually(lambda: all(each._region.has_ended() for each in old))
        with pytest.raises(gpuwm.OwnerDied):
            gpuwm.Pool.open("again")
        make(second)
        second.run("q.put(7)")
        with gpuwm.Queue.open("again-q") as queue, gpuwm.Pool.open("again") as pool:
            assert queue.get(timeout=10) == 7
            pool.check()
        for each in old:
            with pytest.raises(gpuwm.OwnerDied):
                type(each).open(each.id)
            each.close()


def test_the_error_of_a_block_comes_first(daemon: Daemon) -> None:
    def use() -> torch.Tensor:
        with gpuwm.Pool(ROOM, DEVICE) as pool:
            views.append(pool.put(torch.ones(3)).view("torch"))
            raise ZeroDivisionError

    views: list[torch.Tensor] = []
    with pytest.raises(ZeroDivisionError):
        use()
    assert views[0].tolist() == [1, 1, 1]


def test_views_outlive_the_block(daemon: Daemon) -> None:
    with gpuwm.Pool(ROOM, DEVICE, name="block") as pool:
        view = pool.put(torch.ones(3)).view()
    with pytest.raises(gpuwm.Closed):
        pool.put(torch.ones(3))
    with gpuwm.Pool.open("block") as again:
        again.put(torch.ones(3)).withdraw()
        with pytest.raises(gpuwm.Busy, match="pool block can't be closed: tensors of it are alive"):
            again.close()
    assert view.tolist() == [1, 1, 1]
    del view
    gc.collect()
    eventually(lambda: is_gone("block"))


@pytest.mark.parametrize("option", ["chunks", "ttl"])
def test_no_chunks_and_no_time_are_refused(option: str, daemon: Daemon) -> None:
    with pytest.raises(gpuwm.Invalid, match=f"{option}=0: .*or None"):
        gpuwm.Pool(ROOM, DEVICE, **{option: 0})  # type: ignore[arg-type]


def is_gone(name: str) -> bool:
    with gpuwm.Queue(1):  # which closes what was given up
        try:
            with gpuwm.Pool.open(name):
                return False
        except (gpuwm.NotFound, gpuwm.Ended):
            return True


# ---- before a tensor is taken ------------------------------------------------------------------

BAD_DEVICES: tuple[tuple[Any, type[gpuwm.Error]], ...] = (
    *((name, gpuwm.Invalid) for name in ("nothing", "cuda:x", "meta", "cuda:-1", -1)),
    *((name, gpuwm.NoDevice) for name in ("cuda:77", 77, torch.device("cuda:77"))),
    ("GPU-00000000-0000-0000-0000-000000000000", gpuwm.NoDevice),
)


@pytest.mark.parametrize(("device", "error"), BAD_DEVICES)
def test_a_wrong_device_takes_nothing(
    device: Any, error: type[gpuwm.Error], daemon: Daemon
) -> None:
    with gpuwm.Pool(ROOM, DEVICE) as pool, gpuwm.Queue(1, pool=pool) as messages:
        messages.put(torch.ones(3))
        ref = pool.put(torch.ones(3))
        calls: tuple[Callable[[], Any], ...] = (
            lambda: ref.copy(device),
            lambda: ref.to(device),
            lambda: gpuwm.unwrap(ref, device),
            lambda: gpuwm.unwrap(ref, device, how="copy"),
            lambda: messages.get(device=device),
        )
        for call in calls:
            with pytest.raises(error):
                call()
        assert ref.copy().tolist() == [1, 1, 1]
        assert messages.get(how="copy").tolist() == [1, 1, 1]


def test_a_copy_without_room_takes_nothing(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 12 bytes")

    with gpuwm.Pool(ROOM, DEVICE) as pool:
        ref = pool.put(torch.ones(3))
        with monkeypatch.context() as patched:
            patched.setattr(torch, "empty", full)
            with pytest.raises(gpuwm.NoRoom, match="12 bytes"):
                ref.copy()
        assert ref.copy().tolist() == [1, 1, 1]


@on_host
def test_numpy_refuses_before_it_takes(daemon: Daemon) -> None:
    with gpuwm.Pool(ROOM) as pool:
        ref = pool.put(np.arange(3))
        for call in (ref.copy, ref.to):
            with pytest.raises(gpuwm.Unsupported, match="array of NumPy can't be on"):
                call("cuda:0")
        assert gpuwm.unwrap(ref, "cpu", how="copy").tolist() == [0, 1, 2]
        packed = torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        short = pool.put(packed)
        with pytest.raises(gpuwm.Unsupported, match="float4"):
            short.view("numpy")
        short.release()


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of both kinds
def test_kinds_that_torch_can_not_pass_are_refused(daemon: Daemon) -> None:
    with gpuwm.Queue(1) as messages:
        for tensor in (
            torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
            torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        ):
            with pytest.raises(gpuwm.Unsupported, match="tensor can't be sent"):
                messages.put([tensor])
        assert messages.empty()
