"""A mapping gives its memory back for a while, and keeps its addresses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from conftest import BACKEND, DEVICE, Daemon, by_torch
from torch import nn

import gpuwm

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)).to(DEVICE)


@pytest.fixture
def model(daemon: Daemon) -> Iterator[nn.Module]:
    made = net()
    gpuwm.publish(made, "parked@v1")
    yield made
    daemon.admin.remove_alias("parked", "current")
    daemon.admin.retire("parked@v1", 30, force=True)


def computed(model: nn.Module) -> list[float]:
    with torch.no_grad():
        found: list[float] = model(torch.ones(64, device=DEVICE)).cpu().tolist()
    return found


def test_a_bound_model_computes_again_what_it_did(model: nn.Module) -> None:
    before, at = computed(model), [each.data_ptr() for each in model.parameters()]
    mapping = gpuwm.mapping_of(model)
    assert not mapping.parked
    mapping.park()
    mapping.park()  # changes nothing
    assert mapping.parked
    mapping.check()
    mapping.unpark()
    mapping.unpark()
    assert not mapping.parked
    assert [each.data_ptr() for each in model.parameters()] == at
    assert computed(model) == before


def test_what_is_parked_is_not_for_use(model: nn.Module) -> None:
    mapping = gpuwm.mapping_of(model)
    mapping.park()
    with pytest.raises(gpuwm.Error, match="parked@v1 is parked: nothing is mapped") as caught:
        mapping.switch()
    assert "unpark it first" in str(caught.value)
    with pytest.raises(gpuwm.Error, match="parked@v1 is parked"):
        mapping.verify()


READS = """
import sys, gpuwm, numpy as np
mapping = gpuwm.attach("parked@v1")
array = mapping["0.weight"].numpy()
mapping.park()
print("parked", flush=True)
print(array[0])
"""


def test_a_read_ends_the_process_and_says_why(model: nn.Module) -> None:
    if BACKEND != "host":
        pytest.skip("memory of a GPU is read by kernels")
    found = subprocess.run(
        [sys.executable, "-c", READS], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode < 0
    assert found.stdout == "parked\n"
    said = "gpuwm: SIGSEGV: parked@v1 is parked, and was read or written: nothing is mapped there"
    assert said in found.stderr


def test_two_mappings_share_the_memory(model: nn.Module) -> None:
    """It goes when the second has parked, and is there again with the first that is unparked."""
    first, second = gpuwm.attach("parked@v1"), gpuwm.attach("parked@v1")
    want = first["1.weight"].torch().tolist()
    tensor = second["1.weight"].torch()
    gpuwm.mapping_of(model).park()
    first.park()
    assert tensor.tolist() == want
    second.park()
    first.unpark()
    assert tensor.tolist() == want
    first.close()


def test_what_can_t_park_is_said(model: nn.Module) -> None:
    if BACKEND == "host":
        with (
            gpuwm.attach("parked@v1", writes="private") as private,
            pytest.raises(gpuwm.Unsupported, match="private writes, which would be lost"),
        ):
            private.park()
    with gpuwm.attach("parked@v1") as mapping:
        mapping.park()
        asyncio.run(mapping.unpark_async(1))
        assert not mapping.parked


def test_room_is_counted_while_a_mapping_is_awake(model: nn.Module) -> None:
    with gpuwm.attach("parked@v1", room=4 << 20) as mapping:
        assert mapping.room == 4 << 20
        mapping.park(room=1 << 20)
        assert mapping.room == 1 << 20
        mapping.unpark()
        assert mapping.room == 4 << 20
        mapping.unpark(room=2 << 20)
        assert mapping.room == 2 << 20
        with pytest.raises(gpuwm.Invalid, match="can't park with 4.0 MiB of room"):
            mapping.park(room=4 << 20)
        with pytest.raises(gpuwm.NoRoom):
            mapping.unpark(room=1 << 50)
        asyncio.run(mapping.unpark_async(1, room=0))
        assert mapping.room == 0
    with pytest.raises(gpuwm.Invalid, match="copy=True with room"):
        gpuwm.attach("parked@v1", copy=True, room=1)  # type: ignore[call-overload]


def test_mappings_that_are_unparked_together_wait_for_all(model: nn.Module) -> None:
    one, other = gpuwm.attach("parked@v1"), gpuwm.attach("parked@v1")
    for mapping in (one, other):
        mapping.park()
    with pytest.raises(gpuwm.NoRoom, match='of the group "both" 1 of 2 leases have asked'):
        one.unpark(together=("both", 2))
    other.unpark(together=("both", 2))
    one.unpark(together=("both", 2))
    assert not one.parked
    assert not other.parked
    one.park()
    other.park()
    asyncio.run(_together(one, other))
    assert not one.parked
    for wrong in (("", 2), ("both", 0), ("both", 257)):
        with pytest.raises(gpuwm.Invalid):
            one.unpark(together=wrong)
    one.close()
    other.close()


async def _together(*mappings: gpuwm.Mapping) -> None:
    await asyncio.gather(*(each.unpark_async(30, together=("both", 2)) for each in mappings))
