"""A checkpoint that gpuwm cut for the ranks of an engine feeds SGLang's loader."""

from __future__ import annotations

import pathlib
import re
import shutil
from typing import Any

import pytest
from conftest import Daemon, plan

from tests_engines.comparing import differences
from tests_engines.engines import Engine
from tests_engines.starting import Start

RANKS = range(2)


def both(start: Start, kind: str, meet: str, **arguments: Any) -> list[Engine]:
    """The ranks of one engine."""
    return [start(kind, rank=rank, meet=meet, tp_size=len(RANKS), **arguments) for rank in RANKS]


def cut(daemon: Daemon, checkpoint: pathlib.Path, text: str) -> str:
    """Loads a checkpoint, cut by a plan. The ref."""
    folder = daemon.models / f"cut-{checkpoint.name}"
    shutil.copytree(checkpoint, folder)
    ref = f"{folder.name}@v1"
    daemon.load_folder(ref, folder, ranks=len(RANKS), cut=text)
    return ref


@pytest.mark.parametrize(
    ("kind", "name"),
    [("dense", "llama"), ("biased", "qwen"), ("experts", "qwen"), ("mixtral", "mixtral")],
)
def test_each_rank_has_what_it_reads_from_the_whole(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path, kind: str, name: str
) -> None:
    own = both(start, kind, "own")
    ref = cut(daemon, checkpoints / kind, plan(name))
    extra = {"ref": ref, "mode": "raw"}
    builders = both(start, kind, "builders", load_format="gpuwm", extra=extra)
    for rank in RANKS:
        assert differences(own[rank], builders[rank]) == []
        assert builders[rank].ask("shared")
        assert f"from {ref} on" in builders[rank].text()


def test_other_rows_are_refused(daemon: Daemon, start: Start, checkpoints: pathlib.Path) -> None:
    """Both ranks read the one head of keys and values, and SGLang pads the vocabulary before it
    divides: rank 0 reads more of it than it has."""
    text = re.sub(r" of \w+", "", plan("llama"))  # else gpuwm refuses to cut the head
    ref = cut(daemon, checkpoints / "lonely", text)
    extra = {"ref": ref, "mode": "raw"}
    engines = both(start, "lonely", "fed", load_format="gpuwm", extra=extra)
    for rank, tensor in enumerate(("lm_head.weight", "k_proj.weight")):
        failed = engines[rank].failed()
        assert failed.error == "Mismatch"
        assert tensor in failed.text
        assert f"rank {rank} of 2 of {ref} has rows" in failed.text
