"""Models that FSDP or DDP has wrapped, in groups of one and of two processes: publish and bind
carry them, or refuse them by name, and wait for no other rank."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from conftest import Daemon, on_host
from torch import nn

import gpuwm

pytestmark = on_host

CHILD_S = 240
# A rank. Rank 0 alone calls gpuwm: a collective that it would start could never end. What it calls
# is in `calls`, and what came of it is printed.
RANK = """
import sys, torch, torch.distributed as dist
import gpuwm, gpuwm.image
kind, rank, world, path, ref = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
store = dist.FileStore(path, world)
dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
if kind == "fully_shard":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
elif kind == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
else:
    from torch.distributed.fsdp import FullyShardedDataParallel
    flat = {"device_id": torch.device("cpu"), "use_orig_params": kind == "fsdp of names"}
    model = FullyShardedDataParallel(model, **flat)
calls = {
    "publish": lambda: gpuwm.publish(model, ref + ".publish@v1"),
    "copy": lambda: gpuwm.publish(model, ref + ".copy@v1", bind=False),
    "dict": lambda: gpuwm.publish(dict(model.named_parameters()), ref + ".dict@v1", bind=False),
    "image": lambda: gpuwm.image.publish(model, ref + ".image@v1"),
    "bind": lambda: gpuwm.attach(ref + ".plain@v1").bind(model),
}
if rank == 0:
    plain = {name: torch.zeros(each.shape) for name, each in model.named_parameters()}
    gpuwm.publish(plain, ref + ".plain@v1", bind=False)
    for name, call in calls.items():
        try:
            call()
            print("did", name)
        except gpuwm.Error as error:
            print(type(error).__name__, name, error)
    store.set("done", "1")
store.get("done")
if kind == "fully_shard":  # torch 2.13's FSDP1 crashes in get_model_state_dict on a CPU
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = get_model_state_dict(model, options=options)
    if rank == 0:
        gpuwm.publish(whole, ref + ".whole@v1", bind=False)
dist.destroy_process_group()
"""


def said(kind: str, world: int, tmp_path: pathlib.Path, ref: str) -> str:
    """What rank 0 prints. All ranks end in time."""
    ranks = [
        subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", RANK),
                *(kind, str(rank), str(world), str(tmp_path / "store"), ref),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        found = ranks[0].communicate(timeout=CHILD_S)[0]
        assert ranks[0].returncode == 0  # or else the others wait for it
        ended = [rank.wait(CHILD_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert ended == [0] * world
    return found


def plain() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


PARTS = {
    "fully_shard": (r"0.weight: a DTensor", "0.weight is a DTensor"),
    "fsdp": (r"_flat_param: a part of FSDP's", "_flat_param is a part of FSDP's"),
    "fsdp of names": (r"0.weight: a part of FSDP's", "0.weight is a part of FSDP's"),
}


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("kind", PARTS)
def test_parts_are_refused_by_name(
    daemon: Daemon, tmp_path: pathlib.Path, kind: str, world: int
) -> None:
    """And the remedy, which all ranks follow together, publishes the whole model."""
    ref = f"parts.{kind.replace(' ', '-')}-{world}"
    told = said(kind, world, tmp_path, ref)
    assert "did" not in told
    published, bound = PARTS[kind]
    for call in ("publish", "copy", "dict", "image"):
        line = next(each for each in told.split("\nUnsupported ") if call in each[:20])
        assert published in line, line
        assert "get_model_state_dict(model" in line
    assert f"sharded: {'_fsdp_wrapped_module.' * ('fsdp' in kind)}{bound}" in told
    assert "bind the model before FSDP wraps it" in told
    if kind != "fully_shard":
        return
    found = gpuwm.build(f"{ref}.whole@v1", plain)
    x = torch.ones(1, 4)
    with torch.no_grad():
        assert torch.equal(found(x), plain()(x))


@pytest.mark.parametrize("world", [1, 2])
def test_what_ddp_wraps_is_whole(daemon: Daemon, tmp_path: pathlib.Path, world: int) -> None:
    told = said("ddp", world, tmp_path, f"whole.{world}")
    assert told.splitlines() == [f"did {c}" for c in ("publish", "copy", "dict", "image", "bind")]
