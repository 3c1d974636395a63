"""gpuwmctl top: on a terminal, and as text."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from own_gpuwmd import BUILD, SOON, wait_for

from conftest import Gpuwmd

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def worker(gpuwmd: Gpuwmd) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds m@v1; m@v2 is there too."""
    gpuwmd.load("m@v1")
    gpuwmd.load("m@v2", "16M")
    tool = str(BUILD / "tests/tools/steady-worker")
    process = subprocess.Popen([tool, "m", "1000000"], env=gpuwmd.env, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline().startswith(b"attached")
    yield process
    process.kill()
    process.communicate()


def test_text_fits_80_columns(gpuwmd: Gpuwmd, worker: subprocess.Popen[bytes]) -> None:
    """Without a terminal top prints one picture of 80 columns and ends."""
    gpuwmd.load("a-model-with-a-very-long-name/of-a-quantised-checkpoint@2026-11-26-nightly")
    text = gpuwmd.ctl("top").stdout
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    for words in ("gpuwmd ", "NOT KEPT", "attaches ", "host ", "VERSIONS 3", "WORKERS 1"):
        assert words in text
    assert re.search(rf"^ *{worker.pid} +\S+ +steady-worker +m@v1 ", text, re.M), text
    assert re.search(r"^[a-z]  m@v1 +current +ready +\S+ MiB +1 ", text, re.M), text
    assert re.search(r"^host +\[[a-z]+\.+\]", text, re.M), text
    assert re.search(r"^mean: attaches \S+/s  p50 \S+ ms  p99 .* refused \S+/s$", text, re.M), text


def test_an_engine_that_sleeps_is_parked(gpuwmd: Gpuwmd) -> None:
    gpuwmd.load("m@v1")
    code = "import gpuwm; w = gpuwm.attach('m'); w.park(room=0); print('parked'); input()"
    library = str(BUILD / "lib/libgpuwm-client.so")
    more = {"PYTHONPATH": str(ROOT / "python"), "GPUWM_LIBRARY": library}
    with subprocess.Popen(
        [sys.executable, "-uc", code],
        env={**gpuwmd.env, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as engine:
        assert engine.stdout
        assert engine.stdout.readline() == "parked\n"
        text = gpuwmd.ctl("top").stdout
        assert re.search(rf"^ *{engine.pid} +\S+ +python\S* +m@v1 \(parked\) ", text, re.M), text
        engine.communicate("\n")


def test_json_has_all_that_was_told(gpuwmd: Gpuwmd, worker: subprocess.Popen[bytes]) -> None:
    """With -o json, top prints the answers of gpuwmd."""
    told = json.loads(gpuwmd.ctl("-o", "json", "top").stdout)
    assert set(told) == {"status", "list", "clients", "jobs", "metrics"}
    assert told["status"]["leases"] == 1


def test_keys(gpuwmd: Gpuwmd, worker: subprocess.Popen[bytes], top: Any) -> None:
    """Sorting, filter, help, and q."""
    screen = top(gpuwmd)
    screen.shows("steady-worker", "sort s n l a: size")
    assert screen.seen.index("m@v2") < screen.seen.index("m@v1")
    screen.press("n")
    screen.shows("sort s n l a: name", "m@v2")
    assert screen.seen.index("m@v1") < screen.seen.index("m@v2")
    screen.press("r")
    screen.shows("name, reversed")
    screen.press("/")
    screen.shows("filter: _")
    screen.press("x\x7fv9")
    screen.shows("filter: v9_", "VERSIONS 0", "WORKERS 0")
    screen.press("\x1b")
    screen.shows("VERSIONS 2", "WORKERS 1")
    screen.press("/steady\r")
    screen.shows("/ filter: steady", "VERSIONS 0", "WORKERS 1")
    screen.press("\x1b")
    screen.shows("VERSIONS 2")
    screen.press("h")
    screen.shows("reverse the order")
    screen.press("x")
    screen.shows("VERSIONS 2")
    screen.press("q")
    assert screen.ends() == 0


def test_sizes_and_scrolling(gpuwmd: Gpuwmd, worker: subprocess.Popen[bytes], top: Any) -> None:
    """A window that changes its size is drawn anew, and never scrolls by itself."""
    screen = top(gpuwmd, 80, 14)
    screen.shows("VERSIONS 2")
    assert "steady-worker" not in screen.seen
    screen.press("\x1b[6~")
    screen.shows("steady-worker")
    screen.press("\x1b[H")
    screen.shows("VERSIONS 2")
    screen.press("\t\t")
    screen.shows("steady-worker")
    screen.press("\x1b[A\x1bOA\x1b[5~")
    screen.shows("VERSIONS 2")
    screen.press("jjj\x1b[B\x1bOB")
    screen.shows("WORKERS 1")
    screen.press("")
    screen.resize(50, 40)
    screen.shows("steady-worker")
    for line in re.split(r"\r?\n", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.seen)):
        assert len(line) <= 50, line
    assert "ALIASES" not in screen.seen.split("\x1b[H")[-1]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -15), (signal.SIGHUP, -1)]
)
def test_signals_restore_the_terminal(gpuwmd: Gpuwmd, top: Any, number: int, code: int) -> None:
    """Whatever ends top, the terminal is as it was."""
    screen = top(gpuwmd)
    screen.shows("VERSIONS 0")
    screen.signal(number)
    assert screen.ends() == code


def test_stopped_and_continued(gpuwmd: Gpuwmd, top: Any) -> None:
    """Ctrl-Z gives the terminal back, and fg takes it again."""
    screen = top(gpuwmd)
    screen.shows("VERSIONS 0")
    screen.signal(signal.SIGTSTP)
    stat = pathlib.Path(f"/proc/{screen.process.pid}/stat")
    wait_for(lambda: stat.read_text().split(") ")[1][0] == "T", "top did not stop")
    screen.is_as_before()
    screen.signal(signal.SIGCONT)
    screen.shows("\x1b[?1049h", "VERSIONS 0")
    screen.press("q")
    assert screen.ends() == 0


def test_a_gpuwmd_that_hangs_holds_nobody(gpuwmd: Gpuwmd, top: Any) -> None:
    """Ctrl-C ends top while it waits for an answer."""
    screen = top(gpuwmd)
    screen.shows("VERSIONS 0")
    pid = gpuwmd.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(screen.is_stuck, "top does not wait for gpuwmd")
        screen.signal(signal.SIGINT)
        assert screen.ends() == 0
    finally:
        os.kill(pid, signal.SIGCONT)


def test_no_colour(gpuwmd: Gpuwmd, worker: subprocess.Popen[bytes], top: Any) -> None:
    """$NO_COLOR: letters tell the versions apart."""
    screen = top(gpuwmd, NO_COLOR="1")
    screen.shows("steady-worker")
    assert not re.search(r"\x1b\[[0-9;]*m", screen.seen)


def test_gpuwmd_that_dies_is_told_and_found_again(gpuwmd: Gpuwmd, top: Any) -> None:
    """Top says that nobody answers, and shows the next gpuwmd."""
    screen = top(gpuwmd)
    screen.shows(f"pid {gpuwmd.pid()} ")
    os.kill(gpuwmd.pid(), signal.SIGKILL)
    assert gpuwmd.process
    gpuwmd.process.wait()
    screen.press("")
    screen.shows("NO ANSWER, trying again: ")
    gpuwmd.start()
    screen.press("")
    screen.shows(f"pid {gpuwmd.pid()} ")
    screen.press("")
    screen.shows("VERSIONS 0")
    assert "NO ANSWER" not in screen.seen.split("\x1b[H")[-1]


def test_a_load_shows_with_its_progress(gpuwmd: Gpuwmd, top: Any) -> None:
    """Jobs come and go without a key; one that failed stays for a time."""
    screen = top(gpuwmd)
    screen.shows("VERSIONS 0")
    gpuwmd.load("m@v1", "256M")
    screen.shows("JOBS", "load", "VERSIONS 1")
    broken = gpuwmd.root / "broken.safetensors"
    broken.write_bytes(b"no such thing")
    screen.press("")
    gpuwmd.ctl("load", str(broken), "m@v2", "--device", "host", "--wait", check=False)
    screen.shows("failed", "broken.safetensors")


def test_without_gpuwmd(gpuwmd: Gpuwmd) -> None:
    """Without a gpuwmd top ends as every command does."""
    gpuwmd.stop()
    told = gpuwmd.ctl("top", "--once", check=False)
    assert (told.returncode, told.stdout) == (3, "")
    assert "nobody listens there" in told.stderr
    assert gpuwmd.ctl("-o", "json", "top", check=False).returncode == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_who_is_no_operator_sees_less(gpuwmd: Gpuwmd) -> None:
    """Ordinary users are not told who holds what."""
    gpuwmd.socket.chmod(0o666)
    words = [str(BUILD / "bin/gpuwmctl"), "top"]
    if subprocess.run(["test", "-x", words[0]], user=65534, check=False).returncode:
        pytest.skip("needs a build that others may read")
    text = subprocess.run(
        words, env=gpuwmd.env, user=65534, group=65534, extra_groups=[], capture_output=True
    ).stdout.decode()
    assert "only operators and observers see who holds what" in text
    assert "attaches: only operators and observers are told" in text
    wait_for(lambda: gpuwmd.stands_by(), f"gpuwmd serves on, within {SOON} s")
