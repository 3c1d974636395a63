"""Two ranks of tensor parallelism share a version of two parts, and one of them dies."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Daemon, eventually

from tests_engines.comparing import differences
from tests_engines.engines import Engine
from tests_engines.starting import Start

RANKS = range(2)


def both(start: Start, kind: str, meet: str, **arguments: Any) -> list[Engine]:
    """The ranks of one engine."""
    return [start(kind, rank=rank, meet=meet, tp_size=len(RANKS), **arguments) for rank in RANKS]


@pytest.mark.parametrize("kind", ["dense", "experts"])
def test_each_rank_has_its_part(daemon: Daemon, start: Start, kind: str) -> None:
    ref = f"two-{kind}@v1"
    own = both(start, kind, "own")
    builders = both(start, kind, "builders", load_format="gpuwm", extra={"ref": ref})
    for rank in RANKS:
        builders[rank].loaded()
    extra = {"ref": ref, "mode": "load"}
    others = both(start, kind, "others", load_format="gpuwm", extra=extra)
    for rank in RANKS:
        for engine in (builders[rank], others[rank]):
            assert differences(own[rank], engine) == []
            assert engine.ask("shared")
    (row,) = daemon.admin.list(f"two-{kind}")["versions"]
    assert (row["world"], row["leases"]) == (2, 4)


def test_another_number_of_ranks_is_refused(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "sized@v1"}
    start("dense", load_format="gpuwm", extra=extra).loaded()
    for engine in both(start, "dense", "two", load_format="gpuwm", extra=extra):
        failed = engine.failed()
        assert "sized@v1" in failed.text
        assert "tp" in failed.text or "rank" in failed.text


def test_a_rank_of_the_builder_dies(daemon: Daemon, start: Start) -> None:
    extra = {"ref": "torn@v1"}
    builders = both(start, "dense", "torn", load_format="gpuwm", extra=extra, stop="halfway")
    for builder in builders:
        eventually(builder.is_stopped, 60)
    builders[1].kill()
    builders[0].go_on()
    assert "Connection closed by peer" in builders[0].failed().text
    others = both(start, "dense", "others", load_format="gpuwm", extra=extra)
    for other in others:
        other.loaded()
    assert "ready" in [row["state"] for row in daemon.admin.list("torn")["versions"]]
