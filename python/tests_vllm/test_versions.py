"""Versions that are not there, or go; and a gpuwmd that is not there, or goes."""

from __future__ import annotations

import pathlib

from conftest import Daemon, eventually

from tests_engines.comparing import differences
from tests_engines.engines import Engine
from tests_engines.starting import Start


def attacher(start: Start, ref: str) -> Engine:
    return start("dense", load_format="gpuwm", extra={"ref": ref, "mode": "load"})


def build(start: Start, ref: str) -> Engine:
    engine = start("dense", load_format="gpuwm", extra={"ref": ref})
    engine.loaded()
    return engine


def test_load_without_a_version(daemon: Daemon, start: Start) -> None:
    failed = attacher(start, "nothing@v1").failed()
    assert failed.error == "NotFound"
    assert '"mode": "load"' in failed.text
    assert "let an engine build it first" in failed.text


def test_load_of_a_retired_version(daemon: Daemon, start: Start) -> None:
    holder = build(start, "old@v1")
    daemon.admin.remove_alias("old", "current")
    daemon.admin.retire("old@v1")
    failed = attacher(start, "old@v1").failed()
    assert failed.error == "NotFound"
    assert "old@v1" in failed.text
    assert holder.ask("describe") == holder.loaded()


def test_a_version_that_was_freed_is_built_again(daemon: Daemon, start: Start) -> None:
    build(start, "gone@v1").kill()
    daemon.admin.remove_alias("gone", "current")
    daemon.admin.retire("gone@v1", wait=30)
    assert attacher(start, "gone@v1").failed().error == "NotFound"
    assert "built gone@v1" in build(start, "gone@v1").text()


def test_an_alias_is_attached(daemon: Daemon, start: Start) -> None:
    builder = build(start, "named@v1")
    daemon.admin.set_alias("named", "prod", "v1")
    assert attacher(start, "named@prod").loaded() == attacher(start, "named@v1").loaded()
    builder.kill()


def test_no_gpuwmd(daemon: Daemon, start: Start, tmp_path: pathlib.Path) -> None:
    away = {"GPUWM_SOCKET": str(tmp_path / "nobody.sock")}
    failed = start("dense", load_format="gpuwm", extra={"ref": "m@v1"}, environment=away).failed()
    assert failed.error == "Unreachable"
    assert "nobody.sock" in failed.text
    extra = {"ref": "m@v1", "fallback": "auto"}
    alone = start("dense", load_format="gpuwm", extra=extra, environment=away)
    assert differences(start("dense"), alone) == []
    assert "memory of this engine alone" in alone.text()
    assert not alone.ask("shared")


def test_gpuwmd_is_started_again_while_an_engine_builds(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "cut@v1", "inner": "stops-halfway"}
    builder = start("dense", load_format="gpuwm", extra=extra)
    eventually(builder.is_stopped, 60)
    daemon.kill()
    daemon.start()
    builder.go_on()
    builder.loaded()
    assert "built cut@v1" in builder.text()
    attacher(start, "cut@v1").loaded()


def test_gpuwmd_is_killed_while_an_engine_serves(daemon: Daemon, start: Start) -> None:
    engine = build(start, "kept@v1")
    daemon.kill()
    assert engine.ask("describe") == engine.loaded()
    daemon.start()
    assert engine.ask("describe") == engine.loaded()
