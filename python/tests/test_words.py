"""Errors speak of Python's calls, wherever their texts are made."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import WORDS_OF_C, Daemon

import gpuwm

SOURCES = pathlib.Path(__file__).parents[2]
# What makes the texts of errors that reach Python: the library, gpuwmd and its loaders.
FOLDERS = ("base", "client/lib", "client/region", "daemon", "loader", "memory", "proto")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals(file: pathlib.Path) -> Iterator[str]:
    """The texts in a source of C. A single word is a key or a symbol, and no message."""
    code = COMMENT.sub("", file.read_text())
    lines = [line for line in code.splitlines() if not line.lstrip().startswith("#include")]
    yield from (each for each in LITERAL.findall("\n".join(lines)) if " " in each)


def test_no_text_of_the_library_names_what_only_c_has() -> None:
    files = [file for folder in FOLDERS for file in (SOURCES / folder).rglob("*.[ch]")]
    assert len(files) > 200
    said = [text for file in files for text in literals(file)]
    assert any("out of memory" in text for text in said)
    assert [text for text in said if WORDS_OF_C.search(text)] == []


def test_memory_that_processes_share_is_called_what_was_asked_for(daemon: Daemon) -> None:
    pool, scratch = gpuwm.Pool(1 << 21, name="p"), gpuwm.Scratch.create("s", bytes=1 << 21)
    cache = gpuwm.Blocks.create("region-1", blocks=1, block_bytes=256)
    scratch.acquire(None)
    with pytest.raises(gpuwm.Already, match="^this process holds scratch memory s: release it"):
        scratch.acquire(None)
    scratch.release()
    with pytest.raises(gpuwm.Already, match="does not hold scratch memory s: acquire it first"):
        scratch.release()
    with pytest.raises(gpuwm.NoRoom, match="is larger than pool p"):
        pool.empty((1 << 22,), "uint8")
    with cache.reserve(b"k" * 24), pytest.raises(gpuwm.PoolFull, match="^block cache region-1 has"):
        cache.reserve(b"l" * 24)
    with pytest.raises(gpuwm.NotFound, match='no pool "none"'):
        gpuwm.Pool.open("none")
    with pytest.raises(gpuwm.NotFound, match='no queue "none"'):
        gpuwm.Queue.remove("none")
    with pytest.raises(gpuwm.Invalid, match=r"p is no scratch memory: gpuwm.Pool.open\(\) opens"):
        gpuwm.Scratch.open("p")


def test_what_failed_is_removed(daemon: Daemon) -> None:
    def fail(_: str) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        gpuwm.publish({"w": np.ones(2)}, "failed@v1", announce=fail)
    with pytest.raises(gpuwm.Invalid, match="only what is ready retires; remove it instead"):
        daemon.admin.retire("failed@v1")
    daemon.admin.remove("failed@v1")
