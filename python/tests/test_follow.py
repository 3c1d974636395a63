"""gpuwm-follow with a hook, and workers of this process."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually, on_host, running

import gpuwm

pytestmark = on_host  # it has nothing to do with memory

KEEP_S = 2
A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
GROUP = grp.getgrgid(os.getgid()).gr_name


class Follow:
    """gpuwm-follow, what it told its hook, and what it logged."""

    def __init__(self, folder: pathlib.Path, *flags: str) -> None:
        self.list, self.log = folder / "list", folder / "follow.log"
        hook = f"cat >{self.list}.new && mv {self.list}.new {self.list}"
        words = ["--backend", "m@prod=b", "--keep", str(KEEP_S), "--check", "0.1", "--exec", hook]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [f"{os.environ['GPUWM_BUILD']}/bin/gpuwm-follow", *words, *flags], stderr=log
            )

    def told(self) -> dict[str, str]:
        """Each server's state."""
        if not self.list.exists():
            return {}
        (backend,) = json.loads(self.list.read_text())["backends"]
        return {server["address"]: server["state"] for server in backend["servers"]}

    def tells(self, wanted: dict[str, str]) -> None:
        eventually(lambda: self.told() == wanted)

    def logs(self, text: str) -> None:
        eventually(lambda: text in self.log.read_text())


@contextlib.contextmanager
def following(folder: pathlib.Path, *flags: str) -> Iterator[Follow]:
    follow = Follow(folder, *flags)
    try:
        yield follow
    finally:
        follow.process.terminate()
        code = follow.process.wait(30)
    assert code == 0, follow.log.read_text()


@pytest.fixture(scope="module")
def kept() -> Iterator[Daemon]:
    """A gpuwmd that survives, and lets this user's processes observe."""
    with running("--set", f"access.observe_group={GROUP}", keeper=True) as daemon:
        for tag in ("v1", "v2"):
            daemon.load(f"m@{tag}", {"w": np.ones(8, np.float32)})
        yield daemon


@pytest.fixture(autouse=True)
def first(kept: Daemon) -> None:
    kept.admin.set_alias("m", "prod", "v1")


def worker(ref: str, address: str) -> gpuwm.Mapping:
    """One of this process: with a client of its own, so that it ends by itself."""
    return gpuwm.attach(ref, address=address, client=gpuwm.connect())


def test_requests_follow_the_alias(kept: Daemon, tmp_path: pathlib.Path) -> None:
    a, b = worker("m@prod", A), worker("m@prod", B)
    with following(tmp_path) as follow:
        follow.tells({A: "ready", B: "ready"})
        kept.admin.set_alias("m", "prod", "v2")
        follow.logs("no worker serves m@v2 yet, which m@prod names; requests go on to 2 workers")
        c = worker("m@prod", C)
        follow.tells({A: "drain", B: "drain", C: "ready"})
        b.announce(None)
        follow.tells({A: "drain", C: "ready"})
        c.close()
        follow.tells({A: "ready"})
        a.close()
        follow.tells({})
        b.close()


def test_a_restart_of_gpuwmd_takes_nobody_away(kept: Daemon, tmp_path: pathlib.Path) -> None:
    a = worker("m@prod", A)
    code = "import gpuwm, time; m = gpuwm.attach('m@prod', address='10.0.0.2:80'); time.sleep(99)"
    other = subprocess.Popen([sys.executable, "-c", code])
    try:
        with following(tmp_path) as follow:
            follow.tells({A: "ready", B: "ready"})
            other.send_signal(signal.SIGSTOP)
            kept.restart()
            follow.logs("10.0.0.2:80 is removed: gpuwmd did not tell of it in time")
            follow.tells({A: "ready"})
            other.send_signal(signal.SIGCONT)
            follow.tells({A: "ready", B: "ready"})
    finally:
        other.kill()
        other.wait()
    a.close()


def test_a_hook_that_fails_is_run_again(kept: Daemon, tmp_path: pathlib.Path) -> None:
    a = worker("m@prod", A)
    broken = f"test -e {tmp_path}/mended && touch {tmp_path}/done"
    with following(tmp_path, "--exec", broken, "--exec-retry", "0.1") as follow:
        follow.logs("the hook ended with status 1")
        (tmp_path / "mended").touch()
        eventually((tmp_path / "done").exists)
        follow.logs("the hook succeeds again")
    a.close()


def test_who_is_no_observer_is_told_so(tmp_path: pathlib.Path) -> None:
    with running() as daemon, following(tmp_path, "--socket", str(daemon.socket)) as follow:
        follow.logs("clients needs the role operator or observer")


def test_gpuwmd_may_come_later(kept: Daemon, tmp_path: pathlib.Path) -> None:
    a = worker("m@prod", A)
    path = tmp_path / "gpuwm.sock"
    with following(tmp_path, "--socket", str(path)) as follow:
        follow.logs("gpuwmd can't be asked, and no server is changed until it can")
        path.symlink_to(kept.socket)
        follow.tells({A: "ready"})
        follow.logs("gpuwmd tells what there is again")
    a.close()


def test_a_wrong_flag_is_no_service(tmp_path: pathlib.Path) -> None:
    program = f"{os.environ['GPUWM_BUILD']}/bin/gpuwm-follow"
    done: Any = subprocess.run([program, "--backend", "m"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "'m' has no =BACKEND" in done.stderr
