"""Leases that an operator takes: what a worker sees, and what kick and a retire by force do."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from conftest import Daemon, Tensors, eventually

import gpuwm

WEIGHT = {"w": np.arange(64, dtype=np.float32)}


def test_a_kicked_mapping_says_so_and_stays_mapped(
    daemon: Daemon, checkpoint: Callable[[Tensors], str]
) -> None:
    name = checkpoint(WEIGHT)
    kept, kicked = gpuwm.attach(name), gpuwm.attach(name)
    before = kicked["w"].tobytes()
    assert not kicked.revoked
    rows = daemon.admin.kick(pid=os.getpid())
    assert [row["pid"] for row in rows] == [os.getpid()] * 2
    eventually(lambda: kicked.revoked and kept.revoked)
    with pytest.raises(gpuwm.Lost, match="was revoked: an operator"):
        kicked.check()
    assert kicked["w"].tobytes() == before
    assert daemon.leases(name) == 0
    assert daemon.admin.status()["revoked"] == 2
    kicked.close()
    kept.close()
    assert daemon.admin.status()["revoked"] == 0


def test_one_lease_is_kicked_by_its_number(
    daemon: Daemon, checkpoint: Callable[[Tensors], str]
) -> None:
    name = checkpoint(WEIGHT)
    mapping = gpuwm.attach(name)
    rows = [row for client in daemon.admin.clients() for row in client["leases"]]
    lease = next(row["lease"] for row in rows if f"{row['model']}@{row['tag']}" == name)
    assert [row["lease"] for row in daemon.admin.kick(lease)] == [lease]
    eventually(lambda: mapping.revoked)
    with pytest.raises(gpuwm.NotFound):
        daemon.admin.kick(lease)
    mapping.close()


def test_a_version_retired_by_force_is_freed_and_its_name_too(
    daemon: Daemon, checkpoint: Callable[[Tensors], str]
) -> None:
    name = checkpoint(WEIGHT)
    model, tag = name.split("@")
    mapping = gpuwm.attach(name)
    daemon.admin.pin(name, "night")
    with pytest.raises(gpuwm.Busy, match="1 pin"):
        daemon.admin.retire(name, force=True)
    daemon.admin.unpin(name, "night")
    daemon.admin.swap(model, None)
    daemon.admin.retire(name, wait=60, force=True, after=0.05)
    assert daemon.admin.list(model)["versions"] == []
    assert daemon.admin.status()["still_mapped"] > 0
    daemon.load(name, WEIGHT)
    eventually(lambda: mapping.revoked)
    mapping.switch(name)
    assert not mapping.revoked
    assert mapping.version.tag == tag
    eventually(lambda: daemon.admin.status()["still_mapped"] == 0)
    mapping.close()


def test_arguments_of_kick_and_retire_are_checked(daemon: Daemon) -> None:
    with pytest.raises(gpuwm.Invalid, match="0 of lease"):
        daemon.admin.kick()
    with pytest.raises(gpuwm.Invalid, match="2 of lease"):
        daemon.admin.kick(1, uid=2)
    with pytest.raises(TypeError):
        daemon.admin.kick(pid="1")  # type: ignore[arg-type]
    with pytest.raises(gpuwm.Invalid, match="after"):
        daemon.admin.retire("m@v1", after=1)
    with pytest.raises(gpuwm.NotFound):
        daemon.admin.kick(uid=12345)


def test_workers_do_not_kick(client: gpuwm.Client) -> None:
    with pytest.raises(gpuwm.Refused):
        client.kick(uid=0)
