"""What hooks are told of loads, publishes and waits, and the bars that show it."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Daemon, Tensors, by_torch, eventually, write_safetensors
from torch import nn

import gpuwm
from gpuwm._shown import bars

ONES = np.ones(1024, np.float32)


@pytest.fixture
def version(checkpoint: Callable[[Tensors], str]) -> str:
    return checkpoint({"a": ONES})


@pytest.fixture
def default() -> Iterator[list[gpuwm.Progress]]:
    """What the process's hook is told."""
    told: list[gpuwm.Progress] = []
    before = gpuwm.set_progress(told.append)
    yield told
    gpuwm.set_progress(before)


class Stopped:
    """gpuwmd's loaders stand still, until the hook has heard of the job that waits for them."""

    def __init__(self, daemon: Daemon) -> None:
        self.told: list[gpuwm.Progress] = []
        self.threads: set[int] = set()
        eventually(lambda: daemon.admin.status()["standby"])  # it takes the next job
        self._loaders = _children(daemon.pid)
        self._send(signal.SIGSTOP)

    def _send(self, number: int) -> None:
        for pid in self._loaders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def __call__(self, told: gpuwm.Progress) -> None:
        self.told.append(told)
        self.threads.add(threading.get_ident())
        if told.phase != "waiting":
            self._send(signal.SIGCONT)

    def __enter__(self) -> Stopped:
        return self

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGCONT)

    def check(self, what: str, name: str) -> None:
        """It heard that the call waits, of a job's phase, and of the end."""
        assert {(each.what, each.name) for each in self.told} == {(what, name)}
        assert len({each.number for each in self.told}) == 1
        phases = [each.phase for each in self.told]
        assert (phases[0], phases[-1]) == ("waiting", "done")
        assert set(phases) - {"waiting", "done"}
        assert self.threads == {threading.get_ident()}


def _children(pid: int) -> list[int]:
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[1]) == pid:
                found.append(int(folder.name))
    return found


def folder_of(daemon: Daemon, name: str) -> pathlib.Path:
    folder = daemon.models / name
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"a": ONES})
    return folder


def test_a_load(daemon: Daemon) -> None:
    folder = folder_of(daemon, "shown-load")
    with Stopped(daemon) as hook:
        job = daemon.admin.load(folder, "shown@load", devices=daemon.device)
        assert job.status()["state"] in ("queued", "running")
        assert (job.progress.what, job.progress.name) == ("load", "shown@load")
        assert not job.progress.has_ended
        assert job.wait(60, progress=hook)
    hook.check("load", "shown@load")
    assert job.progress.phase == "done"


def test_a_load_that_fails(daemon: Daemon, default: list[gpuwm.Progress]) -> None:
    (daemon.models / "shown-empty").mkdir()
    job = daemon.admin.load(daemon.models / "shown-empty", "shown@empty", devices=daemon.device)
    with pytest.raises(gpuwm.Error):
        job.wait(60)
    assert default[-1][:3] == ("load", "shown@empty", "failed")
    with pytest.raises(gpuwm.Error):
        daemon.admin.wait_job(int(job))
    assert default[-1][:3] == ("job", str(job), "failed")
    assert job.progress.phase == "failed"


@pytest.mark.parametrize("named_by", ["tag", "alias", "id"])
def test_a_wait_for_a_promotion(daemon: Daemon, version: str, named_by: str) -> None:
    model = version.partition("@")[0]
    daemon.admin.set_alias(model, "prod", "v1")
    id_ = daemon.admin.list(model)["versions"][0]["version"]
    ref = {"tag": version, "alias": f"{model}@prod", "id": id_}[named_by]
    assert [job.wait() for job in daemon.admin.demote(version, "files")] == [True]
    with Stopped(daemon) as hook, gpuwm.attach(ref, wait=60, progress=hook) as w:
        assert w["a"].tobytes() == ONES.tobytes()
    hook.check("wait", ref)


def test_a_wait_on_another_thread(daemon: Daemon, version: str) -> None:
    assert [job.wait() for job in daemon.admin.demote(version, "files")] == [True]

    def wait() -> None:
        with Stopped(daemon) as hook:
            gpuwm.attach(version, wait=60, progress=hook).close()
        hook.check("wait", version)
        ended.append(True)

    ended: list[bool] = []
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert ended


def test_a_hook_that_raises_ends_the_wait() -> None:
    def stop(told: gpuwm.Progress) -> None:
        if told.phase == "waiting":
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        gpuwm.attach("shown@never", wait=60, progress=stop)


def test_what_need_not_wait_tells_no_wait(
    version: str, default: list[gpuwm.Progress], daemon: Daemon
) -> None:
    gpuwm.attach(version).close()
    assert default == []
    gpuwm.attach(version, wait=60).close()
    assert [each.phase for each in default] == ["done"]


@by_torch
def test_a_publish(version: str) -> None:
    told: list[gpuwm.Progress] = []
    name = f"{version.partition('@')[0]}-published@v1"
    tensors = {"a": torch.ones(4), "b": torch.ones(6)}
    gpuwm.publish(tensors, name, progress=told.append)
    assert {(each.what, each.name) for each in told} == {("publish", name)}
    assert [each.phase for each in told] == ["copying", "copying", "committing", "done"]
    assert [each.total for each in told[:2]] == [40, 40]
    assert (told[0].done in (16, 24), told[1].done) == (True, 40)


@by_torch
def test_a_fill(default: list[gpuwm.Progress], daemon: Daemon) -> None:
    def fill(model: nn.Module) -> None:
        nn.init.ones_(next(model.parameters()))
        filling.append(default[-1])

    filling: list[gpuwm.Progress] = []
    gpuwm.build("shown-fill@v1", lambda: nn.Linear(2, 2), fill=fill, mode="auto")
    assert [each[:3] for each in filling] == [("fill", "shown-fill@v1", "filling")]
    ends = [(each.what, each.phase) for each in default if each.has_ended]
    assert ends == [("wait", "done"), ("fill", "done"), ("publish", "done")]


@by_torch
def test_a_builder(default: list[gpuwm.Progress], daemon: Daemon) -> None:
    build = gpuwm.builder(model="shown-builder", key="one")(lambda: torch.ones(4))
    build()
    assert {(each.what, each.name) for each in default} == {("build", "shown-builder@one")}
    phases = [each.phase for each in default]
    assert list(dict.fromkeys(phases)) == ["attaching", "waiting", "building", "publishing", "done"]
    del default[:]
    assert build.submit().result(60) is not None  # its future has the progress
    assert default == []


def test_who_is_told(version: str) -> None:
    def one(_: gpuwm.Progress) -> None:
        pass

    before = gpuwm.set_progress(one)
    assert before == "auto"
    assert gpuwm.set_progress(None) is one
    assert gpuwm.set_progress("auto") is None
    with pytest.raises(
        TypeError, match=r"progress=1: give a function that gets each gpuwm\.Progress"
    ):
        gpuwm.set_progress(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress=1"):
        gpuwm.attach(version, wait=1, progress=1)  # type: ignore[call-overload]


# ---- bars --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Cell(io.StringIO):
    """Stands in for what ipykernel has as standard error."""

    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize("stream", [Terminal, Cell])
def test_a_bar_where_somebody_looks(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(bars, "DELAY_S", 0)
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    hook: Any = bars.hook()
    for done in (1 << 20, 2 << 20):
        hook(gpuwm.Progress("load", "m@v1", "copying", done, 4 << 20, number=1))
    assert "load m@v1: copying:  50%" in shown.getvalue()
    hook(gpuwm.Progress("load", "m@v1", "done", number=1))
    assert not hook._bars
    assert not hook._since


def test_a_short_operation_draws_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    hook: Any = bars.hook()
    if hook is None:
        pytest.skip("there is no tqdm")
    for phase in ("copying", "copying", "done"):
        hook(gpuwm.Progress("load", "m@v1", phase, 1, 2, number=2))
    assert shown.getvalue() == ""


def test_no_bar_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert bars.hook() is None


def test_no_bar_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(bars, "_has_tqdm", lambda: False)
    assert bars.hook() is None


def test_a_wait_that_nobody_watches_opens_no_subscription(daemon: Daemon, version: str) -> None:
    def wait() -> None:
        with pytest.raises(gpuwm.TimedOut):
            gpuwm.attach("shown@never", wait=0.5, progress=None)

    before = daemon.admin.status()["sessions"]
    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: daemon.admin.status()["waiting"] == 1)
    assert daemon.admin.status()["sessions"] <= before + 1
    thread.join()
