"""Connecting: from any folder, by programs of any name."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from conftest import Daemon, run_python

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
