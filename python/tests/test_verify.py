"""Whether a process reads what its version says."""

from __future__ import annotations

import mmap
import os
import pathlib
import random

import numpy as np
import pytest
from conftest import Daemon, eventually, on_fakecuda, on_host, run_python

import gpuwm
from gpuwm import _election
from gpuwm.vllm import layouts

TENSORS = {name: np.full(5000, value, np.float32) for value, name in enumerate("abc")}


@pytest.fixture(scope="module")
def version(daemon: Daemon) -> str:
    return daemon.load("read@v1", TENSORS)


def test_all_is_as_it_was(version: str) -> None:
    with gpuwm.attach(version) as w:
        for names in (None, "b", ["c", "a"], []):
            assert w.verify(names) is None  # type: ignore[func-returns-value]


def test_digests_tell_which_tensors_differ(version: str, daemon: Daemon) -> None:
    other = daemon.load("read@v2", {**TENSORS, "c": TENSORS["c"] + 1})
    with gpuwm.attach(version) as w, gpuwm.attach(other) as changed:
        mine, theirs = w.digests(), changed.digests()
        assert list(mine) == ["a", "b", "c"]
        assert {name for name in mine if mine[name] != theirs[name]} == {"c"}
        assert {len(digest) for digest in mine.values()} == {32}


def differs(w: gpuwm.Mapping, names: list[str] | None = None, *, sample: int) -> bool:
    try:
        w.verify(names, sample=sample)
    except gpuwm.Damaged:
        return True
    return False


@on_host
def test_some_at_random(version: str) -> None:
    with gpuwm.attach(version, writes="private") as w:
        w.torch("b")[7] = 1.5
        state = random.getstate()
        assert {differs(w, sample=1) for _ in range(60)} == {True, False}
        assert differs(w, sample=9)
        assert not differs(w, ["a"], sample=1)
        assert random.getstate() == state
        with pytest.raises(gpuwm.Invalid, match="sample=-1"):
            w.verify(sample=-1)


def test_names_that_are_not_there(version: str) -> None:
    with gpuwm.attach(version, glob="[ab]") as w:
        w.verify()
        with pytest.raises(gpuwm.NoTensor, match="c of read@v1 was not attached"):
            w.verify(["a", "c"])
        with pytest.raises(gpuwm.NoTensor, match="read@v1 has no tensor d"):
            w.verify("d")
        with pytest.raises(TypeError, match=r"names=\[1\]"):
            w.verify([1])  # type: ignore[list-item]


@on_host
def test_what_was_written_is_named(version: str) -> None:
    with gpuwm.attach(version, writes="private") as w:
        w.torch("b")[7] = 1.5
        w.verify(["a", "c"])
        with pytest.raises(gpuwm.Damaged, match=r"tensor b of read@v1: the version ") as raised:
            w.verify()
        assert "private writes" in raised.value.detail


def _target(link: pathlib.Path) -> str:
    """Empty if gpuwmd has closed the descriptor since it was listed."""
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def flip(daemon: Daemon, content: bytes) -> None:
    """Changes a bit of this content where gpuwmd holds it, in the stand-in's memory."""
    for link in pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir():
        if "/memfd:fakecuda-" not in _target(link):
            continue
        with open(link, "r+b") as memory, mmap.mmap(memory.fileno(), 0) as mapped:
            at = mapped.find(content)
            if at >= 0:
                mapped[at] ^= 1
                return
    raise AssertionError("no memory of the stand-in's has these bytes")


@on_fakecuda
def test_a_version_that_is_tainted(daemon: Daemon, client: gpuwm.Client) -> None:
    daemon.load("bad@v1", {"a": np.full(5000, 0.5, np.float32)})
    daemon.load("bad@v2", {"a": np.full(5000, 0.25, np.float32)})
    before, other = gpuwm.attach("bad@v1"), gpuwm.attach("bad@v2")
    flip(daemon, np.full(5000, 0.5, np.float32).tobytes())
    with pytest.raises(gpuwm.Damaged, match="tensor a of bad@v1: the version has digest"):
        before.verify()
    assert str(gpuwm.attach("bad@v1").version) == "bad@v1"  # gpuwmd has not looked yet
    (job,) = daemon.admin.verify("bad@v1")
    with pytest.raises(gpuwm.Damaged, match='tensor "a": the index says digest'):
        job.wait(60)
    with pytest.raises(gpuwm.Damaged, match="bad@v1 is tainted: ") as caught:
        gpuwm.attach("bad@v1")
    assert "gpuwmctl swap bad to another version" in caught.value.detail
    with pytest.raises(gpuwm.Damaged, match="bad@v1 is tainted: "):
        other.switch("bad@v1")
    with pytest.raises(gpuwm.Damaged, match="bad@v1 is tainted: "):  # of an engine that starts
        _election.claim(client, "bad@v1", daemon.device, 0, None)
    with pytest.raises(gpuwm.Damaged, match="bad@v1 is tainted: "):  # `like` of a publisher
        layouts.parts_of("bad@v1", (os.getuid(), "operator"), client)
    assert str(other.version) == "bad@v2"
    other.verify()
    eventually(lambda: (daemon.leases("bad@v1"), daemon.leases("bad@v2")) == (1, 1))


def test_two_processes_can_tell_that_they_read_the_same(version: str) -> None:
    code = """
import sys, gpuwm
w = gpuwm.attach(sys.argv[1])
w.verify(sample=2)
print(w.version.content)
"""
    said = {run_python(code, version).strip() for _ in range(2)}
    with gpuwm.attach(version) as w:
        assert said == {w.version.content}
