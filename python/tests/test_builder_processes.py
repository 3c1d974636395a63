"""Processes and threads that call a builder at once, and builders that die or hang."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from built import Counted
from conftest import by_torch, eventually, run_python, running

import gpuwm
import gpuwm.builders
from gpuwm import image

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

_models = itertools.count(1)


@pytest.fixture
def model() -> str:
    return f"raced-{next(_models)}"


PROGRAM = """
import os, sys, time, torch, gpuwm
log = open(sys.argv[1], "a")
@gpuwm.builder(model=sys.argv[2])
def build():
    log.write("x"); log.flush()
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.01)
    return {"w": torch.arange(1000.0)}
found = build()
assert found["w"].sum() == 499500
print("has it", flush=True)
"""


class Racing:
    def __init__(self, folder: pathlib.Path, model: str) -> None:
        self.log, self.go = folder / "log", folder / "go"
        self.log.touch()
        self.arguments = [str(self.log), model, str(self.go)]
        self.started: list[subprocess.Popen[str]] = []

    def start(self, count: int = 1) -> None:
        command = [sys.executable, "-c", PROGRAM, *self.arguments]
        for _ in range(count):
            self.started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def builds(self) -> int:
        return len(self.log.read_text())


@pytest.fixture
def racing(tmp_path: pathlib.Path, model: str) -> Iterator[Racing]:
    found = Racing(tmp_path, model)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def claimers(client: gpuwm.Client, model: str) -> list[Any]:
    return [claim["pid"] for claim in client.list(model)["claims"]]


def test_of_racing_processes_one_builds(racing: Racing) -> None:
    racing.go.touch()
    racing.start(16)
    assert [process.communicate(timeout=300)[0] for process in racing.started] == ["has it\n"] * 16
    assert racing.builds() == 1


def test_a_killed_builder_has_one_successor(racing: Racing) -> None:
    racing.start(4)
    eventually(lambda: racing.builds() == 1, 120)
    (elected,) = claimers(gpuwm.connect(), racing.arguments[1])
    os.kill(elected, signal.SIGKILL)
    eventually(lambda: racing.builds() == 2, 120)
    racing.go.touch()
    told = [process.communicate(timeout=300)[0] for process in racing.started]
    assert sorted(told) == ["", "has it\n", "has it\n", "has it\n"]
    assert racing.builds() == 2


def test_a_killed_builder_that_forked_has_a_successor_too(model: str, client: gpuwm.Client) -> None:
    told = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time, gpuwm\n"
            "@gpuwm.builder(model=sys.argv[1])\n"
            "def build():\n"
            "    if os.fork() == 0:\n"
            "        os.close(1); time.sleep(600)\n"
            "    print('forked', flush=True); time.sleep(600)\n"
            "build()\n",
            model,
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert told.stdout is not None
    assert told.stdout.readline() == "forked\n"
    told.kill()
    try:
        eventually(lambda: claimers(client, model) == [], 60)
    finally:
        os.killpg(told.pid, signal.SIGKILL)
        told.communicate()


def test_a_builder_that_returns_in_a_fork_builds_in_its_parent(model: str) -> None:
    told = run_python(
        "import os, sys, torch, gpuwm\n"
        "@gpuwm.builder(model=sys.argv[1])\n"
        "def build():\n"
        "    build.child = os.fork()\n"
        "    return torch.ones(2)\n"
        "try:\n"
        "    print(build().tolist(), os.waitpid(build.child, 0)[1])\n"
        "except gpuwm.InChild:\n"
        "    os._exit(0)\n",
        model,
    )
    assert told == "[1.0, 1.0] 0\n"


def test_those_who_wait_for_a_builder_that_hangs_may_give_up(model: str) -> None:
    go = threading.Event()

    def make(_: int) -> Any:
        go.wait(60)
        return torch.ones(1)

    hanging = Counted(make).builder(model=model).submit()
    eventually(lambda: hanging.progress.phase == "building")
    begun = time.monotonic()
    with pytest.raises(gpuwm.TimedOut):
        Counted(make).builder(model=model, wait=0.2)()
    assert time.monotonic() - begun < 30
    go.set()
    hanging.result(60)


def test_a_restart_during_the_publish_costs_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as started:
        counted = Counted(lambda _: torch.arange(4.0))
        build = counted.builder(model="m")
        kills = itertools.count(1)
        publish = image.publish

        def restarted(*arguments: Any, **options: Any) -> Any:
            def told(how_far: gpuwm.Progress) -> None:
                if how_far.phase == "copying" and next(kills) == 1:
                    started.kill()
                    started.start()

            return publish(*arguments, **{**options, "progress": told})

        monkeypatch.setattr(image, "publish", restarted)
        assert build().tolist() == build().tolist() == [0, 1, 2, 3]
        assert (counted.calls, next(kills)) == (1, 3)


def test_threads_race_too(model: str) -> None:
    counted = Counted(lambda _: torch.ones(1))
    build = counted.builder(model=model)
    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        found = list(executor.map(lambda _: build().item(), range(8)))
    assert (found, counted.calls) == ([1.0] * 8, 1)


def test_submitted_calls_may_wait_for_others(model: str) -> None:
    inner = gpuwm.builder(model=f"{model}-inner")(ones)

    def outer(size: int) -> Any:
        return {"twice": inner.submit(size).result(60) * 2}

    build = gpuwm.builder(model=model)(outer)
    futures = [build.submit(size) for size in range(1, 21)]
    assert [future.result(120)["twice"].numel() for future in futures] == list(range(1, 21))


def ones(size: int) -> torch.Tensor:
    return torch.ones(size)
