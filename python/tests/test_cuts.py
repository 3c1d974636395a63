"""What a part says of how it was cut, and what mode raw of engines makes of that."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually
from cut_parts import Arrays, publish

import gpuwm
from gpuwm._cuts import Cut
from gpuwm.engines import engine as engines
from gpuwm.engines import raw
from gpuwm.engines.ranks import Ranks
from gpuwm.engines.raw import Share
from gpuwm.engines.settings import Settings

_count = itertools.count()
PLAN = """
# what each rank gets
*.up.weight split 0
\t*.down.weight  split  1 optional  # the other way
norm*copy copy
embed[0] rank 1
"""
DENSE = {
    "l.up.weight": np.zeros((2, 6), np.float32),
    "l.down.weight": np.zeros((6, 3), np.float32),
    "norm.copy": np.zeros(6, np.float32),
}


@pytest.fixture
def ref() -> str:
    return f"cut{next(_count)}@v1"


def cuts_of(daemon: Daemon, ref: str, rank: int) -> dict[str, Cut]:
    with gpuwm.attach(ref, rank=rank, device=daemon.device) as part:
        return part.cuts


def test_a_part_says_where_its_rows_are(daemon: Daemon, ref: str) -> None:
    last = {**DENSE, "embed[0]": np.zeros(4, np.float32)}
    publish(daemon, ref, [DENSE, last], PLAN)
    assert cuts_of(daemon, ref, 0) == {
        "l.up.weight": Cut(dim=0, first=0, rows=2, whole=(4, 6)),
        "l.down.weight": Cut(dim=1, first=0, rows=3, whole=(6, 6)),
    }
    assert cuts_of(daemon, ref, 1) == {
        "l.up.weight": Cut(dim=0, first=2, rows=2, whole=(4, 6)),
        "l.down.weight": Cut(dim=1, first=3, rows=3, whole=(6, 6)),
    }


def test_only_what_is_attached_is_listed(daemon: Daemon, ref: str) -> None:
    publish(daemon, ref, [DENSE, DENSE], PLAN)
    with gpuwm.attach(ref, rank=1, device=daemon.device, glob="*down*") as part:
        assert list(part.cuts) == ["l.down.weight"]


@pytest.mark.parametrize("plan", [None, PLAN])
def test_of_a_whole_version_nothing_is_cut(daemon: Daemon, ref: str, plan: str | None) -> None:
    publish(daemon, ref, [DENSE], plan)
    assert cuts_of(daemon, ref, 0) == {}


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("l.up* split 0", "0 of its rules match tensor l.down.weight"),
        ("* copy\n*.up* split 0", "2 of its rules match tensor l.up.weight"),
        ("* split 2", "tensor l.down.weight has no dimension 2"),
        ("* copy\nmany more words here", "line 2 is no rule"),
        ("* split -1", "line 1 is no rule"),
        ("* optional", "line 1 is no rule"),
    ],
)
def test_a_plan_that_does_not_fit_is_named(daemon: Daemon, ref: str, plan: str, why: str) -> None:
    """No load makes such a part, but anybody may publish one."""
    publish(daemon, ref, [DENSE, DENSE], plan)
    with pytest.raises(gpuwm.Damaged, match=f"rank 1 of {ref} has does not fit.*: {why}"):
        cuts_of(daemon, ref, 1)


# ---- mode raw ----


def find(daemon: Daemon, ref: str, share: Share) -> tuple[raw.Checkpoint, dict[str, str]]:
    return raw.find(ref, lambda: share, None, gpuwm.connect(daemon.socket))


def engine(daemon: Daemon, ref: str, share: Share) -> Any:
    """As `names.connect` makes it."""
    checkpoint, identity = find(daemon, ref, share)
    return engines.Engine(
        settings=Settings(ref=ref, mode="raw"),
        client=gpuwm.connect(daemon.socket),
        ranks=Ranks(),
        device=daemon.device,
        layout={},
        details={},
        identity=identity,
        name="derived",
        ref=ref,
        checkpoint=checkpoint,
        share=share,
    )


def of(value: float) -> Arrays:
    return {"w": np.full((4, 2), value, np.float32)}


def test_each_rank_reads_its_part(daemon: Daemon, ref: str) -> None:
    publish(daemon, ref, [of(0), of(1)], "w split 0")
    for rank in (0, 1):
        with raw.attach_to(engine(daemon, ref, Share(rank, 2))) as part:
            assert part.version.rank == rank
            assert part.cuts["w"].first == 4 * rank


def test_what_other_ranks_have_alone(daemon: Daemon, ref: str) -> None:
    parts = [{**of(0), f"e{rank}.w": np.zeros(rank + 2, np.float32)} for rank in range(3)]
    publish(
        daemon, ref, parts, "w split 0\ne0* rank 0\ne1* rank 1\n*2.w rank 2\ne9 rank 7 optional"
    )
    one = engine(daemon, ref, Share(1, 3))
    with raw.attach_to(one) as part:
        found = [(info.name, info.shape) for info in raw.elsewhere(one, part)]
    assert found == [("e0.w", (2,)), ("e2.w", (4,))]


def test_a_whole_version_serves_any_number_of_ranks(daemon: Daemon, ref: str) -> None:
    publish(daemon, ref, [of(0)], None)
    with raw.attach_to(engine(daemon, ref, Share(3, 4))) as part:
        assert (part.version.rank, part.version.world) == (0, 1)


def test_the_identity_is_that_of_all_parts(daemon: Daemon) -> None:
    found = []
    for last in (1, 2, 1):
        ref = publish(daemon, f"cut{next(_count)}@v1", [of(0), of(last)], "w split 0")
        found.append(find(daemon, ref, Share(0, 2))[1]["identity.weights"])
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (1, "the engine has 1 rank of tensor parallelism: .*without a plan"),
        (4, "the engine has 4 ranks of tensor parallelism: .*--ranks 4 --cut PLAN"),
    ],
)
def test_another_number_of_ranks_is_refused(
    daemon: Daemon, ref: str, ranks: int, said: str
) -> None:
    publish(daemon, ref, [of(0), of(1)], "w split 0")
    with pytest.raises(gpuwm.Mismatch, match=f"{ref} has a part for each of 2 ranks, and {said}"):
        find(daemon, ref, Share(0, ranks))


def test_parts_that_an_engine_published_are_refused(daemon: Daemon, ref: str) -> None:
    publish(daemon, ref, [of(0), of(1)], None)
    with pytest.raises(gpuwm.Unsupported, match=f"parts of {ref} were not cut.*--ranks 2 --cut"):
        raw.attach_to(engine(daemon, ref, Share(1, 2)))
    eventually(lambda: daemon.leases(ref) == 0)


def test_a_part_that_went_is_named_with_its_load(daemon: Daemon, ref: str) -> None:
    publish(daemon, ref, [of(0), of(1)], "w split 0")
    one = engine(daemon, ref, Share(1, 2))
    daemon.admin.remove_alias(ref.partition("@")[0], "current")
    daemon.admin.retire(ref, wait=30)
    with pytest.raises(gpuwm.NotFound, match=f"gpuwmctl load FOLDER {ref} --ranks 2 --cut PLAN"):
        raw.attach_to(one)


@pytest.mark.parametrize("ref", ["absent@v1", "absent"])
def test_a_version_that_is_not_there_is_named(daemon: Daemon, ref: str) -> None:
    with pytest.raises(gpuwm.NotFound, match=f"no ready version {ref}"):
        find(daemon, ref, Share(0, 1))
