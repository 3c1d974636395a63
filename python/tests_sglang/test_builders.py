"""One engine builds and the others wait; a builder that dies at any moment has a successor."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from conftest import Daemon, eventually, running

import gpuwm
from gpuwm import _election
from tests_engines.comparing import differences
from tests_engines.engines import Engine
from tests_engines.starting import Start

WAITERS = 2


def gpuwm_engine(start: Start, ref: str, stop: str | None = None) -> Engine:
    return start("dense", load_format="gpuwm", extra={"ref": ref}, stop=stop)


def waiting(daemon: Daemon) -> int:
    """Engines whose claim gpuwmd will answer once the builder is done or gone."""
    return int(daemon.admin.status()["waiting"])


def states(daemon: Daemon, model: str) -> list[str]:
    return sorted(row["state"] for row in daemon.admin.list(model)["versions"])


def stopped_builder(start: Start, ref: str, stop: str) -> Engine:
    builder = gpuwm_engine(start, ref, stop)
    eventually(builder.is_stopped, 60)
    return builder


def test_one_builds_while_others_wait(daemon: Daemon, start: Start) -> None:
    builder = stopped_builder(start, "crowd@v1", "halfway")
    others = [gpuwm_engine(start, "crowd@v1") for _ in range(WAITERS)]
    eventually(lambda: waiting(daemon) == WAITERS, 60)
    assert all(other.is_waiting() for other in others)
    builder.go_on()
    own = start("dense")
    assert all(differences(own, engine) == [] for engine in (builder, *others))
    assert "built crowd@v1" in builder.text()
    assert not any("built crowd@v1" in other.text() for other in others)
    (row,) = daemon.admin.list("crowd")["versions"]
    assert (row["state"], row["leases"]) == ("ready", 1 + WAITERS)


def test_engines_that_start_at_once_build_once(daemon: Daemon, start: Start) -> None:
    engines = [start("dense", load_format="gpuwm") for _ in range(3)]
    own = start("dense")
    assert all(differences(own, engine) == [] for engine in engines)
    assert sum("gpuwm: built dense@sglang-" in engine.text() for engine in engines) == 1


@pytest.mark.parametrize("moment", ["at-start", "halfway", "in-publish"])
def test_a_builder_is_killed_before_its_commit(daemon: Daemon, start: Start, moment: str) -> None:
    ref = f"{moment}@v1"
    builder = stopped_builder(start, ref, moment)
    (claim,) = daemon.admin.list(moment)["claims"]
    assert (claim["pid"], claim["begun"]) == (builder.pid, moment == "in-publish")
    other = gpuwm_engine(start, ref)
    eventually(lambda: waiting(daemon) == 1, 60)
    builder.kill()
    assert differences(start("dense"), other) == []
    assert f"built {ref}" in other.text()
    assert states(daemon, moment) == ["ready"]


def test_a_builder_fails(daemon: Daemon, start: Start) -> None:
    builder = stopped_builder(start, "fails@v1", "then-fails")
    other = gpuwm_engine(start, "fails@v1")
    eventually(lambda: waiting(daemon) == 1, 60)
    builder.go_on()
    assert "the test's disk is broken" in builder.failed().text
    assert differences(start("dense"), other) == []
    assert states(daemon, "fails") == ["ready"]


def test_the_checkpoint_changes_while_an_engine_waits(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "moving"
    shutil.copytree(checkpoints / "dense", folder)
    client = gpuwm.connect(daemon.socket)
    assert _election.claim(client, "moving@v1", "host", 0, None) is None
    waiter = start(str(folder), load_format="gpuwm", extra={"ref": "moving@v1"})
    eventually(lambda: waiting(daemon) == 1, 60)
    shutil.copy(checkpoints / "dense-2" / "model.safetensors", folder)
    client.close()
    failed = waiter.failed()
    assert failed.error == "Mismatch"
    assert "changed while it was read: identity.weights was" in failed.text
    assert states(daemon, "moving") == []


def test_no_room(start: Start) -> None:
    """The model has 220 KiB."""
    with running("--budget", "host=100K") as daemon:
        failed = gpuwm_engine(start, "full@v1").failed()
        assert failed.error == "NoRoom"
        assert "no room on host: " in failed.text
        assert "retire or demote a version, or raise [budget] host" in failed.text
        extra = {"ref": "full@v1", "fallback": "auto"}
        alone = start("dense", load_format="gpuwm", extra=extra)
        assert differences(start("dense"), alone) == []
        assert "memory of this engine alone" in alone.text()
        assert "no room on host" in alone.text()
        assert not alone.ask("shared")
        assert states(daemon, "full") == []
