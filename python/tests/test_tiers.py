"""Versions on tiers: they go to files and to host memory, and an attach brings them back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import Daemon, Tensors, on_gpu

import gpuwm

ONES = np.ones(16, np.float32)


@pytest.fixture
def version(checkpoint: Callable[[Tensors], str]) -> str:
    return checkpoint({"a": ONES})


def tier_of(daemon: Daemon, version: str) -> str:
    name = version.partition("@")[0]
    return str(daemon.admin.list(name)["versions"][0].get("tier", "device"))


def demote(daemon: Daemon, version: str, tier: str) -> None:
    assert [job.wait() for job in daemon.admin.demote(version, tier)] == [True]
    assert tier_of(daemon, version) == tier


def test_an_attach_that_waits_brings_it_back(daemon: Daemon, version: str) -> None:
    demote(daemon, version, "files")
    assert daemon.admin.demote(version, "files") == []
    with gpuwm.attach(version, wait=30) as weights:
        assert weights["a"].tobytes() == ONES.tobytes()
        with pytest.raises(gpuwm.Busy, match="has 1 lease"):
            daemon.admin.demote(version, "files")


@on_gpu
def test_host_memory_is_a_tier_of_a_gpu(daemon: Daemon, version: str) -> None:
    demote(daemon, version, "host")
    assert [job.wait() for job in daemon.admin.promote(version)] == [True]
    with gpuwm.attach(version) as weights:
        assert weights["a"].tobytes() == ONES.tobytes()


def test_files_describe_a_version_if_they_have_its_bytes(daemon: Daemon, version: str) -> None:
    source = daemon.admin.list(version.partition("@")[0])["versions"][0]["source"]
    assert [job.wait() for job in daemon.admin.describe(version, source)] == [True]
    with pytest.raises(gpuwm.Invalid, match="is not demoted to"):
        daemon.admin.demote(version, "disk")


def test_events_say_why(daemon: Daemon, version: str) -> None:
    with daemon.admin.events() as events:
        demote(daemon, version, "files")
        event = next(event for event in events if event.kind == "demoted")
    assert f"{event.model}@{event.tag}" == version
    assert event.data["to"] == "files"
    assert "asked for by" in event.data["reason"]
