"""Connecting: from any folder, by programs of any name."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest
from conftest import Daemon, run_python, running

import gpuwm


def test_a_relative_socket_is_found_from_another_folder(daemon: Daemon) -> None:
    daemon.load("away@v1", {"a": np.ones(4, np.float32)})
    code = """
import os, pickle, sys, gpuwm
os.chdir(os.path.dirname(sys.argv[1]))
os.environ["GPUWM_SOCKET"] = os.path.basename(sys.argv[1])
w = gpuwm.attach("away@v1")
sent = pickle.dumps(w.ref("a"))
os.chdir("/")
assert w.switch("away@v1", wait=5).tag == "v1"
del w, os.environ["GPUWM_SOCKET"]
print(len(pickle.loads(sent).open()))
"""
    assert run_python(code, str(daemon.socket)) == "4\n"


@pytest.mark.parametrize(
    "argv", ["[]", "['']", "[None]", "['\\udcff']", "['é' * 99]", "['/a/' + 'x' * 255]"]
)
def test_any_name_of_a_script(daemon: Daemon, argv: str) -> None:
    run_python(f"import sys; sys.argv = {argv}; import gpuwm; gpuwm.connect()")
    run_python("import sys; del sys.argv; import gpuwm; gpuwm.connect()")


def test_an_empty_variable_is_none(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "gpuwm").mkdir()
    (tmp_path / "gpuwm/gpuwm.sock").symlink_to(daemon.socket)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("GPUWM_SOCKET", "")
    client = gpuwm.connect()
    assert client.socket is None  # found again as it was
    name = daemon.load("found@v1", {"a": np.ones(4, np.float32)})
    gpuwm.attach(name, client=client).switch(name, wait=5)


LATE = 0.5  # seconds that a wait may take longer on a machine that is idle
TRIES = 3  # a busy machine may be late once; what is always late is so each time


def took(call: Callable[[], object], match: str = ".") -> float:
    """Seconds until the call gives up, of the first try that is in time."""
    for _ in range(TRIES):
        began = time.monotonic()
        with pytest.raises(gpuwm.TimedOut, match=match):
            call()
        seconds = time.monotonic() - began
        if seconds < 1 + LATE:
            break
    return seconds


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpuwm.connect(wait=1),
        lambda: gpuwm.connect(timeout=1),
        lambda: gpuwm.attach("m", wait=1),
        lambda: gpuwm.attach("m", wait=1, layers=[0]),
        lambda: gpuwm.handles("m", wait=1),
        lambda: gpuwm.obtain("m@v1", dict, wait=1),
    ],
    ids=["connect wait", "connect timeout", "attach", "layers", "handles", "obtain"],
)
def test_a_wait_bounds_connecting(call: Callable[[], object]) -> None:
    """gpuwmd is there and does not answer."""
    with running() as stopped:
        stopped.signal(signal.SIGSTOP)
        assert 1 <= took(call, rf"gpuwmd \(pid {stopped.pid}\) did not answer") < 1 + LATE
        stopped.signal(signal.SIGCONT)


def test_one_wait_is_for_gpuwmd_and_for_the_version(daemon: Daemon) -> None:
    assert 1 <= took(lambda: gpuwm.attach("nobody@makes-this", wait=1)) < 1 + LATE


@pytest.mark.parametrize(
    ("variable", "folder"), [("XDG_RUNTIME_DIR", "gpuwm"), ("HOME", ".local/state/gpuwm")]
)
def test_this_users_gpuwmd_is_found_without_a_variable_of_gpuwm(
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    variable: str,
    folder: str,
) -> None:
    if os.path.exists(f"/run/user/{os.geteuid()}/gpuwm/gpuwm.sock"):
        pytest.skip("this user runs a gpuwmd, which is found first")
    name = daemon.load(f"{variable}@v1", {"a": np.ones(4, np.float32)})
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "gpuwm.sock").symlink_to(daemon.socket)
    monkeypatch.delenv("GPUWM_SOCKET")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    code = f"import gpuwm; print(len(gpuwm.attach({name!r})))"
    assert run_python(code) == "1\n"
