"""Following an alias, and the commands, with a server that stands in for vLLM's."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Daemon
from switched import Engine, Server, raising, serving

import gpuwm
from gpuwm.vllm import __main__ as commands
from gpuwm.vllm import follow as following

REF = "followed@prod"


class Aliased(Engine):
    """Its ranks look up what `ref` names at gpuwmd."""

    def prepare(self, rank: int, ref: str, verify: str, take_over: str) -> dict[str, Any]:
        with gpuwm.attach(ref) as found:
            self.refs[rank] = found.version.id
        return super().prepare(rank, ref, verify, take_over)

    def said(self, version: str) -> dict[str, Any]:
        return {"version": f"followed@{version[:4]}", "id": version, "bytes": 1}


@pytest.fixture(scope="module")
def versions(daemon: Daemon) -> list[str]:
    """Ids of v1 and v2."""
    found = [gpuwm.publish({"w": np.zeros(8)}, f"followed@v{n}", bind=False).id for n in (1, 2)]
    daemon.admin.set_alias("followed", "prod", "v1")
    return found


@pytest.fixture
def engine(versions: list[str]) -> Aliased:
    return Aliased(ids=[versions[0]] * 2)


@pytest.fixture
def server(engine: Aliased) -> Iterator[Server]:
    with serving(engine) as found:
        yield found


Follower = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def follower() -> Iterator[Follower]:
    started: list[subprocess.Popen[str]] = []

    def start(url: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpuwm.vllm", "follow", url, REF]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        assert line(started[-1]) == f"{url} follows {REF}\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_an_engine_goes_where_its_alias_goes(
    daemon: Daemon, engine: Aliased, server: Server, versions: list[str], follower: Follower
) -> None:
    daemon.admin.set_alias("followed", "prod", "v2")
    process = follower(server.url)
    assert f"-> followed@{versions[1][:4]} ({versions[1]}): prepare " in line(process)
    daemon.admin.set_alias("followed", "other", "v1")  # which is not its alias
    daemon.admin.set_alias("followed", "prod", "v1")
    assert f"({versions[0]}): prepare " in line(process)
    assert engine.ids == [versions[0]] * 2
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130


def test_a_version_that_is_refused_is_waited_out(
    daemon: Daemon, engine: Aliased, server: Server, versions: list[str], follower: Follower
) -> None:
    engine.fails["gpuwm_prepare", 0] = raising(gpuwm.Mismatch("another layout", "start another"))
    process = follower(server.url)
    assert process.stderr is not None
    assert "keeps its version: " in process.stderr.readline()
    engine.fails.clear()
    daemon.admin.set_alias("followed", "prod", "v2")
    assert f"({versions[1]}): prepare " in line(process)
    daemon.admin.set_alias("followed", "prod", "v1")
    line(process)


class Enough(Exception):
    pass


def has_switched(switched: Any) -> None:
    assert not switched.moved
    raise Enough


@pytest.mark.parametrize(
    "error",
    [
        gpuwm.Busy("another switch came between"),
        gpuwm.Quota("all leases are taken"),
        gpuwm.Draining("gpuwmd ends"),
    ],
    ids=["busy", "quota", "draining"],
)
def test_what_may_pass_is_tried_again(
    engine: Aliased, server: Server, monkeypatch: pytest.MonkeyPatch, error: gpuwm.Error
) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.01)

    def once() -> None:
        engine.fails.clear()
        raise error

    engine.fails["gpuwm_prepare", 0] = once
    with pytest.raises(Enough):
        following.follow(server.url, REF, on_switch=has_switched)
    assert engine.did.count("prepare followed@prod yes no") == 2


def test_an_engine_that_was_left_paused_is_resumed(
    daemon: Daemon, engine: Aliased, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    daemon.admin.set_alias("followed", "prod", "v2")

    def away() -> None:
        engine.fails.clear()
        raise gpuwm.Unreachable("nobody there")

    def twice() -> None:
        if engine.did.count("wake") == 2:
            engine.fails = {("gpuwm_prepare", 0): away}
        raise RuntimeError("not now")

    engine.fails["wake", -1] = twice
    try:
        with pytest.raises(Enough):
            following.follow(server.url, REF, on_switch=has_switched)
    finally:
        daemon.admin.set_alias("followed", "prod", "v1")
    assert not engine.paused
    assert engine.did.count("prepare followed@prod yes yes") == 2


def test_an_engine_that_is_lost_ends_it(engine: Aliased, server: Server, daemon: Daemon) -> None:
    daemon.admin.set_alias("followed", "prod", "v2")
    engine.fails["gpuwm_commit", 0] = raising(gpuwm.Busy("captured"))
    engine.fails["gpuwm_settle", 0] = raising(gpuwm.Lost("no memory"))
    with pytest.raises(gpuwm.Lost):
        following.follow(server.url, REF)
    daemon.admin.set_alias("followed", "prod", "v1")


def test_one_switch_from_a_shell(
    engine: Aliased, server: Server, versions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["switch", server.url, "followed@v2", "--mode", "finish"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"followed@{versions[0][:4]} -> followed@{versions[1][:4]} (")
    assert "exchange " in said
    assert "sleep wait" in engine.did
    assert commands.main(["switch", server.url, "followed@v2", "--no-verify"]) == 0
    assert capsys.readouterr().out.endswith("already\n")
    assert commands.main(["switch", server.url, "followed@v9"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("gpuwm.vllm: http://127.0.0.1:")
    assert "could not prepare: " in said


def test_help_says_what_a_server_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.main(["--help"])
    assert "VLLM_SERVER_DEV_MODE=1" in capsys.readouterr().out


def test_other_events_do_not_put_a_try_off(
    daemon: Daemon, engine: Aliased, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.2)
    ends = threading.Event()

    def disturb() -> None:
        while not ends.wait(0.02):
            daemon.admin.set_alias("followed", "other", "v1")
            daemon.admin.remove_alias("followed", "other")

    class Enough(Exception):
        pass

    def twice() -> None:
        if engine.did.count("prepare followed@prod yes no") > 2:
            engine.fails.clear()
        raise gpuwm.Busy("another switch has not ended")

    def told(switched: Any) -> None:
        raise Enough

    engine.fails["gpuwm_prepare", 0] = twice
    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        with pytest.raises(Enough):
            following.follow(server.url, REF, on_switch=told)
    finally:
        ends.set()
        disturber.join()


def test_a_gpuwmd_that_is_away_at_the_start(
    daemon: Daemon, engine: Aliased, server: Server, tmp_path: Any
) -> None:
    socket = tmp_path / "later.sock"
    command = [sys.executable, "-m", "gpuwm.vllm", "follow", server.url, REF]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*command, "--socket", str(socket)], stdout=pipe, stderr=pipe, text=True
    )
    try:
        assert process.stderr is not None
        assert "no gpuwmd, trying again every 5 s" in process.stderr.readline()
        socket.symlink_to(daemon.socket)
        assert line(process) == f"{server.url} follows {REF}\n"
        assert line(process).endswith("already\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.communicate()


def test_it_goes_on_with_the_next_gpuwmd(
    daemon: Daemon, engine: Aliased, server: Server, follower: Follower
) -> None:
    """The last test, as it leaves none of the versions. All has happened when the follower comes
    back to a gpuwmd that numbers its events anew."""
    process = follower(server.url)
    assert line(process).endswith("already\n")
    process.send_signal(signal.SIGSTOP)
    daemon.kill()
    daemon.start()
    version = gpuwm.publish({"w": np.zeros(8)}, "followed@v3", bind=False)
    daemon.admin.set_alias("followed", "prod", "v3")
    process.send_signal(signal.SIGCONT)
    assert f"({version.id}): prepare " in line(process)
    assert engine.ids == [version.id] * 2
