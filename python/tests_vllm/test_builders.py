"""One engine builds and the others wait; a builder that dies at any moment has a successor."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
from conftest import Daemon, eventually

import gpuwm
from gpuwm import _election
from tests_engines.comparing import differences
from tests_engines.engines import Engine
from tests_engines.starting import Start

WAITERS = 3


def gpuwm_engine(start: Start, ref: str, inner: str = "auto") -> Engine:
    return start("dense", load_format="gpuwm", extra={"ref": ref, "inner": inner})


def waiting(daemon: Daemon) -> int:
    """Engines whose claim gpuwmd will answer once the builder is done or gone."""
    return int(daemon.admin.status()["waiting"])


def versions(daemon: Daemon, model: str) -> list[dict[str, Any]]:
    return list(daemon.admin.list(model)["versions"])


def states(daemon: Daemon, model: str) -> list[str]:
    return sorted(row["state"] for row in versions(daemon, model))


def assert_equal(engines: list[Engine], own: Engine) -> None:
    for engine in engines:
        assert differences(own, engine) == []


def stopped_builder(start: Start, ref: str, inner: str) -> Engine:
    builder = gpuwm_engine(start, ref, inner)
    eventually(builder.is_stopped, 60)
    return builder


def test_one_builds_while_three_wait(daemon: Daemon, start: Start) -> None:
    builder = stopped_builder(start, "crowd@v1", "stops-halfway")
    # With another inner loader they would ask for a checkpoint that gpuwm has looked at.
    others = [gpuwm_engine(start, "crowd@v1", "stops-halfway") for _ in range(WAITERS)]
    eventually(lambda: waiting(daemon) == WAITERS, 60)
    assert all(other.is_waiting() for other in others)
    builder.go_on()
    assert_equal([builder, *others], start("dense"))
    assert "built crowd@v1" in builder.text()
    assert not any("built crowd@v1" in other.text() for other in others)
    (row,) = versions(daemon, "crowd")
    assert (row["state"], row["leases"]) == ("ready", 1 + WAITERS)


@pytest.mark.parametrize("moment", ["stops-at-start", "stops-halfway", "stops-in-publish"])
def test_a_builder_is_killed_before_its_commit(daemon: Daemon, start: Start, moment: str) -> None:
    ref = f"{moment}@v1"
    builder = stopped_builder(start, ref, moment)
    (claim,) = daemon.admin.list(moment)["claims"]
    assert (claim["pid"], claim["begun"]) == (builder.pid, moment == "stops-in-publish")
    others = [gpuwm_engine(start, ref) for _ in range(2)]
    eventually(lambda: waiting(daemon) == 2, 60)
    builder.kill()
    assert_equal(others, start("dense"))
    assert sum(f"built {ref}" in other.text() for other in others) == 1
    assert states(daemon, moment) == ["ready"]


def test_a_builder_is_killed_after_it_committed(daemon: Daemon, start: Start) -> None:
    builder = gpuwm_engine(start, "after@v1")
    builder.loaded()
    builder.kill()
    other = gpuwm_engine(start, "after@v1")
    assert_equal([other], start("dense"))
    assert "attached after@v1" in other.text()
    assert states(daemon, "after") == ["ready"]


def test_a_builder_fails(daemon: Daemon, start: Start) -> None:
    builder = stopped_builder(start, "fails@v1", "stops-then-fails")
    other = gpuwm_engine(start, "fails@v1")
    eventually(lambda: waiting(daemon) == 1, 60)
    builder.go_on()
    assert "the test's disk is broken" in builder.failed().text
    assert_equal([other], start("dense"))
    assert states(daemon, "fails") == ["ready"]


def test_two_save_at_once(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "saved@v1", "mode": "save"}
    first = start("dense", load_format="gpuwm", extra={**extra, "inner": "stops-halfway"})
    eventually(first.is_stopped, 60)
    second = start("dense", load_format="gpuwm", extra=extra).failed()
    assert second.error == "Busy"
    assert "building saved@v1" in second.text
    first.go_on()
    first.loaded()
    third = start("dense", load_format="gpuwm", extra=extra).failed()
    assert third.error == "Exists"
    assert "saved@v1 is there" in third.text
    assert states(daemon, "saved") == ["ready"]


def test_the_checkpoint_changes_while_an_engine_waits(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "moving"
    shutil.copytree(checkpoints / "dense", folder)
    client = gpuwm.connect(daemon.socket)
    assert _election.claim(client, "moving@v1", "host", 0, None) is None
    extra = {"ref": "moving@v1"}
    waiter = start(str(folder), load_format="gpuwm", extra=extra)
    eventually(lambda: waiting(daemon) == 1, 60)
    shutil.copy(checkpoints / "dense-2" / "model.safetensors", folder)
    client.close()
    failed = waiter.failed()
    assert failed.error == "Mismatch"
    assert "changed while it was read: identity.weights was" in failed.text
    assert versions(daemon, "moving") == []
    next_one = start(str(folder), load_format="gpuwm", extra=extra)
    assert differences(start("dense-2"), next_one) == []
