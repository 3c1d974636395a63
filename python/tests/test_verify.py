"""Whether a process reads what its version says."""

from __future__ import annotations

import random

import numpy as np
import pytest
from conftest import Daemon, on_host, run_python

import gpuwm

TENSORS = {name: np.full(5000, value, np.float32) for value, name in enumerate("abc")}


@pytest.fixture(scope="module")
def version(daemon: Daemon) -> str:
    return daemon.load("read@v1", TENSORS)


def test_all_is_as_it_was(version: str) -> None:
    with gpuwm.attach(version) as w:
        assert w.verify() == ["a", "b", "c"]
        assert w.verify("b") == ["b"]
        assert w.verify(["c", "a"]) == ["c", "a"]
        assert w.verify([]) == []


def test_some_at_random(version: str) -> None:
    with gpuwm.attach(version) as w:
        state = random.getstate()
        found = {w.verify(sample=1)[0] for _ in range(60)}
        assert found == {"a", "b", "c"}
        assert sorted(w.verify(sample=9)) == ["a", "b", "c"]
        assert w.verify(["a"], sample=1) == ["a"]
        assert random.getstate() == state
        with pytest.raises(gpuwm.Invalid, match="sample=-1"):
            w.verify(sample=-1)


def test_names_that_are_not_there(version: str) -> None:
    with gpuwm.attach(version, glob="[ab]") as w:
        assert w.verify() == ["a", "b"]
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
        assert w.verify(["a", "c"]) == ["a", "c"]
        with pytest.raises(gpuwm.Damaged, match=r"tensor b of read@v1: the version ") as raised:
            w.verify()
        assert "private writes" in raised.value.detail


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
