"""A checkpoint that gpuwm cut for the ranks of an engine feeds vLLM's loader."""

from __future__ import annotations

import itertools
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
_count = itertools.count()


def cut(daemon: Daemon, checkpoint: pathlib.Path, text: str) -> str:
    """Loads a checkpoint, cut by a plan. The ref."""
    folder = daemon.models / f"cut{next(_count)}"
    shutil.copytree(checkpoint, folder)
    ref = f"{folder.name}@v1"
    daemon.load_folder(ref, folder, ranks=len(RANKS), cut=text)
    return ref


def copying(name: str, *modules: str) -> str:
    """A shipped plan that gives the weights of these modules to all ranks as a whole."""
    lines = [line.partition("#")[0].split() for line in plan(name).splitlines()]
    copied = tuple(f"{module}.weight" for module in modules)
    return "\n".join(
        f"{words[0]} copy" if words and words[0].endswith(copied) else " ".join(words)
        for words in lines
    )


def owning() -> str:
    """The plan for Qwen, but half of the four experts are of one rank alone."""
    lines = [line for line in plan("qwen").splitlines() if ".experts." not in line]
    return "\n".join([*lines, *(f"*.experts.{each}.* rank {each // 2}" for each in range(4))])


def both(start: Start, kind: str, meet: str, **arguments: Any) -> list[Engine]:
    """The ranks of one engine."""
    return [
        start(kind, rank=rank, meet=meet, tensor_parallel_size=len(RANKS), **arguments)
        for rank in RANKS
    ]


def fed(start: Start, kind: str, ref: str, meet: str = "fed", **arguments: Any) -> list[Engine]:
    """The ranks of an engine that reads the checkpoint that was cut."""
    extra = {"ref": ref, "mode": "raw"}
    return both(start, kind, meet, load_format="gpuwm", extra=extra, **arguments)


def are_equal(one: list[Engine], other: list[Engine]) -> None:
    for rank in RANKS:
        assert differences(one[rank], other[rank]) == []
        assert other[rank].ask("shared")


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        ("dense", "llama", {}),
        ("tied", "llama", {}),
        ("dense", "llama", {"quantization": "fp8"}),
        ("biased", "qwen", {}),
        ("experts", "qwen", {}),
        ("mixtral", "mixtral", {}),
    ],
)
def test_each_rank_has_what_it_reads_from_the_whole(
    daemon: Daemon,
    start: Start,
    checkpoints: pathlib.Path,
    kind: str,
    name: str,
    arguments: dict[str, Any],
) -> None:
    own = both(start, kind, "own", **arguments)
    ref = cut(daemon, checkpoints / kind, plan(name))
    builder = fed(start, kind, ref, **arguments)
    are_equal(own, builder)
    assert all(f"from {ref} on" in engine.text() for engine in builder)
    are_equal(own, fed(start, kind, ref, "next", **arguments))


def test_experts_of_one_rank(daemon: Daemon, start: Start, checkpoints: pathlib.Path) -> None:
    """With expert parallelism a rank reads experts as a whole, and not those of the others."""
    parallel: dict[str, Any] = {"enable_expert_parallel": True}
    own = both(start, "experts", "own", **parallel)
    ref = cut(daemon, checkpoints / "experts", owning())
    are_equal(own, fed(start, "experts", ref, **parallel))


def test_experts_that_another_rank_has_are_refused(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path
) -> None:
    """Without expert parallelism a rank reads its share of every expert. vLLM itself does not
    notice that a checkpoint lacks experts."""
    ref = cut(daemon, checkpoints / "experts", owning())
    first, second = (engine.failed().text for engine in fed(start, "experts", ref))
    assert re.search(r"experts\.2\..*but rank 0 of 2 of .* has nothing of it", first)
    assert re.search(r"experts\.0\..*but rank 1 of 2 of .* has nothing of it", second)


def test_heads_and_vocabularies_that_do_not_divide_are_copied(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path
) -> None:
    """Both ranks read the one head of keys and values, and vLLM pads the vocabulary before it
    divides."""
    own = both(start, "lonely", "own")
    text = copying("llama", "k_proj", "v_proj", "embed_tokens", "lm_head")
    are_equal(own, fed(start, "lonely", cut(daemon, checkpoints / "lonely", text)))


@pytest.mark.parametrize(
    ("copied", "wants", "has"),
    [
        (("k_proj", "v_proj"), "rows 0 to 127 of tensor lm_head.weight", "rows 0 to 124 of 250"),
        (("lm_head", "embed_tokens"), "all rows of tensor model", "rows 0 to 7 of 16"),
    ],
)
def test_other_rows_are_refused(
    daemon: Daemon,
    start: Start,
    checkpoints: pathlib.Path,
    copied: tuple[str, ...],
    wants: str,
    has: str,
) -> None:
    text = re.sub(r" of \w+", "", copying("llama", *copied))  # else the load is refused
    ref = cut(daemon, checkpoints / "lonely", text)
    first, second = (engine.failed().text for engine in fed(start, "lonely", ref))
    for text in (first, second):
        assert wants in text
        assert ' copy")' in text  # the rule that helps
    assert f"rank 0 of 2 of {ref} has {has} in dimension 0" in first


def test_another_number_of_ranks_is_refused(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path
) -> None:
    ref = cut(daemon, checkpoints / "dense", plan("llama"))
    failed = start("dense", load_format="gpuwm", extra={"ref": ref, "mode": "raw"}).failed()
    assert failed.error == "Mismatch"
    assert f"{ref} has a part for each of 2 ranks, and the engine has 1 rank" in failed.text
