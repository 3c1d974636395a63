"""Where the tensors of a part lie in the whole tensors, if a plan cut the checkpoint for ranks.

docs/protocol/indices.md ("Cut plans") says what a plan is and where a part keeps it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from . import errors
from ._c.handle import TensorInfo
from ._version import Version

PLAN = "gpuwm.cut.plan"  # the metadata of each part that has the plan's text


class Cut(NamedTuple):
    """Where a tensor of a part lies in the whole tensor: rows `first` to `first + rows - 1` of
    dimension `dim`. whole: the shape of the whole tensor."""

    dim: int
    first: int
    rows: int
    whole: tuple[int, ...]


class _Rule(NamedTuple):
    """matches: the names of its tensors. split: the dimension, or None if ranks get the tensor as a
    whole. only: the rank that gets it; None: all ranks do."""

    matches: re.Pattern[str]
    split: int | None = None
    only: int | None = None


def cuts(plan: str, version: Version, infos: Iterable[TensorInfo]) -> dict[str, Cut]:
    """Of each tensor of a part that the plan splits: where it lies in the whole tensor. plan: its
    text. infos: the part's tensors. Raises Damaged if the plan does not fit the part, which no
    loader makes."""
    rules = list(_rules(plan, version))
    found: dict[str, Cut] = {}
    for info in infos:
        matching = [rule for rule in rules if rule.matches.fullmatch(info.name)]
        if len(matching) != 1:
            raise _unfit(version, f"{len(matching)} of its rules match tensor {info.name}")
        dim = matching[0].split
        if dim is None or version.world == 1:
            continue
        if dim >= len(info.shape):
            raise _unfit(version, f"tensor {info.name} has no dimension {dim}")
        rows = info.shape[dim]
        whole = (*info.shape[:dim], rows * version.world, *info.shape[dim + 1 :])
        found[info.name] = Cut(dim, version.rank * rows, rows, whole)
    return found


def kept(plan: str, version: Version) -> dict[int, re.Pattern[str]]:
    """Of each rank that the plan gives tensors that no other rank gets: what their names match."""
    found: dict[int, list[str]] = {}
    for rule in _rules(plan, version):
        if rule.only is not None:
            found.setdefault(rule.only, []).append(rule.matches.pattern)
    return {
        rank: re.compile("|".join(f"(?:{each})" for each in patterns), re.DOTALL)
        for rank, patterns in found.items()
    }


def _rules(plan: str, version: Version) -> Iterable[_Rule]:
    for number, line in enumerate(plan.split("\n"), 1):
        match _words(line):
            case []:
                continue
            case [glob, "split", dim] | [glob, "split", dim, "of", _] if dim.isdecimal():
                yield _Rule(_pattern(glob), split=int(dim))
            case [glob, "copy"]:
                yield _Rule(_pattern(glob))
            case [glob, "rank", rank] if rank.isdecimal():
                yield _Rule(_pattern(glob), only=int(rank))
            case _:
                raise _unfit(version, f"line {number} is no rule")


def _words(line: str) -> list[str]:
    """The words of a rule, without its comment and without `optional`, which matters to loads."""
    found = [word for word in re.split(r"[ \t]+", line) if word]
    words = list(itertools.takewhile(lambda word: not word.startswith("#"), found))
    return words[:-1] if len(words) > 2 and words[-1] == "optional" else words


def _pattern(glob: str) -> re.Pattern[str]:
    """`*` stands for any characters, and every other character for itself."""
    return re.compile(".*".join(re.escape(text) for text in glob.split("*")), re.DOTALL)


def _unfit(version: Version, why: str) -> errors.Damaged:
    return errors.Damaged(
        f"the cut plan that rank {version.rank} of {version} has does not fit its tensors: {why}",
        "load the version again",
    )
