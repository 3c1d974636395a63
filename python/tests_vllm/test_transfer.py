"""Engines take other weights through vLLM's weight transfer, by the backend `gpuwm`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import Daemon, eventually, running

from tests_engines.engines import Engine
from tests_engines.starting import Start

from .test_switching import RANKS, built, is_on, prepare

TRANSFER: dict[str, Any] = {"weight_transfer_config": {"backend": "gpuwm"}}


def following(start: Start, ref: str, kind: str = "dense", **options: Any) -> Engine:
    """An engine that has made this version, and may take others."""
    return built(start, kind, ref, **TRANSFER, **options)


def call(ranks: list[Engine], method: str, *arguments: Any) -> list[str]:
    """How it failed in each rank, as vLLM's executor is told: only the last rank may tell."""
    for rank in ranks:
        rank.tell("transfer", method, *arguments)
    return [rank.answer() for rank in ranks]


def update(ranks: list[Engine], ref: str) -> str:
    """How an update failed, or an empty text. A failed one is not finished."""
    for method, arguments in (
        ("start_weight_update", ()),
        ("update_weights", ({"ref": ref},)),
        ("finish_weight_update", ()),
    ):
        found = call(ranks, method, *arguments)
        assert found[:-1] == [""] * (len(ranks) - 1)
        if found[-1]:
            return found[-1]
    return ""


def test_two_engines_follow(daemon: Daemon, start: Start) -> None:
    engines = [following(start, "policy@v1")]
    extra = {"ref": "policy@v1", "mode": "load"}
    engines.append(start("dense", load_format="gpuwm", extra=extra, **TRANSFER))
    second = built(start, "dense-2", "policy@v2")
    daemon.admin.set_alias("policy", "prod", "v2")
    first = engines[0].ask("describe")
    for ref, other in (("policy@prod", second.ask("describe")), ("policy@v1", first)):
        for engine in engines:
            assert update([engine], ref) == ""
            assert engine.ask("describe") == other
            assert engine.ask("shared")
    eventually(lambda: daemon.leases("policy@v2") == 1)
    assert "policy@v1 -> policy@v2" in engines[0].text()
    # Tables of rotary embeddings, which are buffers.
    (refreshed,) = set(re.findall(r"refreshed (\d+) bytes", engines[0].text()))
    assert 0 < int(refreshed) < 20_000


def test_nothing_moves_before_the_end_of_the_update(daemon: Daemon, start: Start) -> None:
    engine = following(start, "prepared@v1")
    second = built(start, "dense-2", "prepared@v2")
    first = engine.ask("describe")
    assert call([engine], "start_weight_update") == [""]
    assert call([engine], "update_weights", {"ref": "prepared@v2"}) == [""]
    assert engine.ask("describe") == first
    assert daemon.leases("prepared@v2") == 2
    assert call([engine], "finish_weight_update") == [""]
    assert is_on(engine, second)
    eventually(lambda: daemon.leases("prepared@v1") == 0)
    assert update([engine], "prepared@v2") == ""  # where it is already
    assert is_on(engine, second)


WRONG: dict[str, tuple[Any, str]] = {
    "no version": ({"ref": "wrong@none"}, "NotFound"),
    "no ref": ({}, "Invalid update_info"),
    "another key": ({"ref": "wrong@v1", "names": []}, "Invalid update_info"),
    "no text": ({"ref": 7}, "TypeError"),
    "no flag": ({"ref": "wrong@v1", "verify": "no"}, "verify"),
}


def test_wrong_updates_are_refused(daemon: Daemon, start: Start) -> None:
    engine = following(start, "wrong@v1")
    first = engine.ask("describe")
    for what, (info, said) in WRONG.items():
        assert call([engine], "start_weight_update") == [""], what
        (failed,) = call([engine], "update_weights", info)
        assert said in failed, what
    assert engine.ask("describe") == first
    assert update([engine], "wrong@v1") == ""


def test_steps_in_the_wrong_order(daemon: Daemon, start: Start) -> None:
    engine = following(start, "order@v1")
    built(start, "dense-2", "order@v2")
    assert "without a matching start" in call([engine], "finish_weight_update")[0]
    assert "must be called before" in call([engine], "update_weights", {"ref": "order@v2"})[0]
    assert call([engine], "start_weight_update") == [""]
    assert "without update_weights" in call([engine], "finish_weight_update")[0]
    assert call([engine], "update_weights", {"ref": "order@v2"}) == [""]
    assert "called before" in call([engine], "update_weights", {"ref": "order@v2"})[0]
    assert engine.ask("gpuwm_version")["version"] == "order@v1"
    eventually(lambda: daemon.leases("order@v2") == 1)
    assert update([engine], "order@v2") == ""


def test_another_layout_is_refused(daemon: Daemon, start: Start) -> None:
    engine = following(start, "layout@v1")
    built(start, "dense-2", "layout@v2", dtype="float16")
    failed = update([engine], "layout@v2")
    assert "Mismatch" in failed
    assert "dtype" in failed
    assert engine.ask("gpuwm_version")["version"] == "layout@v1"


def test_a_version_that_is_retired_between_the_two(daemon: Daemon, start: Start) -> None:
    engine = following(start, "gone@v1")
    second = built(start, "dense-2", "gone@v2")
    assert call([engine], "start_weight_update") == [""]
    assert call([engine], "update_weights", {"ref": "gone@v2"}) == [""]
    daemon.admin.remove_alias("gone", "current")
    daemon.admin.retire("gone@v2")
    assert call([engine], "finish_weight_update") == [""]  # the lease keeps it whole
    assert is_on(engine, second)
    assert update([engine], "gone@v2").startswith("NotFound: ")
    assert is_on(engine, second)


def test_a_quota(start: Start) -> None:
    with running("--set", "limits.leases_per_uid=2") as daemon:
        engine = following(start, "quota@v1")
        second = built(start, "dense-2", "quota@v2")
        first = engine.ask("describe")
        failed = update([engine], "quota@v2")
        assert failed.startswith("Quota: ")
        assert "leases_per_uid" in failed
        assert engine.ask("describe") == first
        own = second.ask("describe")
        second.kill()
        eventually(lambda: daemon.leases("quota@v2") == 0)
        assert update([engine], "quota@v2") == ""
        assert engine.ask("describe") == own


def test_bytes_that_are_not_what_was_published(daemon: Daemon, start: Start) -> None:
    engine = following(start, "bytes@v1")
    built(start, "dense-2", "bytes@v2")
    first = engine.ask("describe")
    engine.ask("damage")
    failed = update([engine], "bytes@v2")
    assert failed.startswith("Damaged: tensor ")
    assert "of bytes@v2: the version has digest" in failed
    assert engine.ask("describe") == first
    eventually(lambda: daemon.leases("bytes@v2") == 1)
    assert engine.ask("gpuwm_version")["version"] == "bytes@v1"


def test_a_switch_that_has_not_ended(daemon: Daemon, start: Start) -> None:
    engine = following(start, "busy@v1")
    built(start, "dense-2", "busy@v2")
    prepare(engine, "another's", "busy@v2")
    failed = update([engine], "busy@v2")
    assert re.match("Busy: another switch .* if its caller is dead, it makes way 900 s", failed)
    assert "over" not in failed  # a weight transfer can't take over
    engine.ask("gpuwm_settle", "another's", "old")
    assert call([engine], "start_weight_update") == [""]
    assert call([engine], "update_weights", {"ref": "busy@v2"}) == [""]
    assert engine.ask("gpuwm_prepare", "another's", "busy@v2", "yes", "no")["error"] == "Busy"
    prepare(engine, "another's", "busy@v2", take_over="yes")
    assert call([engine], "finish_weight_update")[0].startswith("Cancelled: another switch")
    assert engine.ask("gpuwm_version")["version"] == "busy@v1"
    engine.ask("gpuwm_settle", "another's", "old")
    assert call([engine], "update_weights", {"ref": "busy@v2"}) == [""]
    assert call([engine], "finish_weight_update") == [""]


def test_an_engine_with_weights_of_its_own(daemon: Daemon, start: Start) -> None:
    failed = start("dense", **TRANSFER).failed()
    assert failed.error == "Unsupported"
    assert "--load-format gpuwm" in failed.text


def test_replicas_are_refused(daemon: Daemon, start: Start) -> None:
    engine = following(start, "replicas@v1")
    engine.ask("be_a_replica")
    assert "data parallelism" in call([engine], "make_transfer_engine")[0]


def test_a_gpuwmd_that_is_killed_before_the_end_of_the_update(start: Start) -> None:
    with running() as daemon:
        engine = following(start, "killed@v1")
        second = built(start, "dense-2", "killed@v2")
        assert call([engine], "start_weight_update") == [""]
        assert call([engine], "update_weights", {"ref": "killed@v2"}) == [""]
        daemon.kill()
        assert call([engine], "finish_weight_update") == [""]
        assert is_on(engine, second)
        assert engine.ask("gpuwm_version")["version"] == "killed@v2"


def test_a_gpuwmd_that_comes_back_without_the_version(start: Start) -> None:
    with running() as daemon:
        engine = following(start, "vanished@v1")
        second = built(start, "dense-2", "vanished@v2")
        assert call([engine], "start_weight_update") == [""]
        assert call([engine], "update_weights", {"ref": "vanished@v2"}) == [""]
        daemon.kill()
        daemon.start()
        eventually(lambda: engine.ask("has_lost_the_other"))
        (told,) = call([engine], "finish_weight_update")
        assert told.startswith("NotFound: ")
        assert "vanished@v2 is gone since" in told
        assert not is_on(engine, second)
        assert engine.ask("gpuwm_version")["version"] == "vanished@v1"


# ---- several ranks ------------------------------------------------------------------------------


def two(start: Start, kind: str, ref: str, meet: str = "") -> list[Engine]:
    ranks = [
        start(
            kind,
            rank=rank,
            meet=meet or f"{kind}-{ref}",
            tensor_parallel_size=RANKS,
            load_format="gpuwm",
            extra={"ref": ref},
            **TRANSFER,
        )
        for rank in range(RANKS)
    ]
    for rank in ranks:
        rank.loaded()
    return ranks


def test_all_ranks_move_or_none(daemon: Daemon, start: Start) -> None:
    engine, second = two(start, "dense", "ranks@v1"), two(start, "dense-2", "ranks@v2")
    first = [rank.ask("describe") for rank in engine]
    assert "NotFound" in update(engine, "ranks@none")
    assert update(engine, "ranks@v2") == ""
    for rank in range(RANKS):
        assert is_on(engine[rank], second[rank])
    engine[0].ask("refuse_exchange")
    assert "rank 0 of this engine could not move: Busy" in update(engine, "ranks@v1")
    for rank in range(RANKS):  # the one that had moved went back
        assert is_on(engine[rank], second[rank])
    eventually(lambda: daemon.leases("ranks@v1") == 0)
    assert engine[1].ask("describe") != first[1]


def test_a_rank_that_can_not_go_back(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "torn@v1")
    two(start, "dense-2", "torn@v2")
    engine[0].ask("refuse_exchange")
    engine[1].ask("refuse_exchange", 1)
    failed = update(engine, "torn@v2")
    assert failed.startswith("Lost: the weight update failed: Error: rank 0 of this engine could")
    assert engine[1].ask("gpuwm_version")["version"] == "torn@v2"


@pytest.mark.parametrize("where", range(RANKS))
def test_an_exchange_that_loses_the_memory_of_a_rank(
    daemon: Daemon, start: Start, where: int
) -> None:
    """All ranks tell Lost, so that nobody resumes the engine."""
    engine = two(start, "dense", f"memory{where}@v1")
    two(start, "dense-2", f"memory{where}@v2")
    engine[where].ask("refuse_exchange", 0, "Lost")
    failed = update(engine, f"memory{where}@v2")
    assert failed.startswith("Lost: the weight update failed: ")
    assert "do not resume the engine, start it again" in failed


@pytest.mark.parametrize("dies", range(RANKS))
def test_a_rank_dies_before_the_end_of_the_update(daemon: Daemon, start: Start, dies: int) -> None:
    """vLLM ends the engine then. The version is whole for others."""
    model = f"dead{dies}"
    engine, second = two(start, "dense", f"{model}@v1"), two(start, "dense-2", f"{model}@v2")
    assert call(engine, "start_weight_update") == ["", ""]
    assert call(engine, "update_weights", {"ref": f"{model}@v2"}) == ["", ""]
    engine[dies].kill()
    (told,) = call([engine[1 - dies]], "finish_weight_update")
    lost = "Lost: the weight update failed: RankEnded: "
    assert told.startswith(lost) if dies == 0 else told == ""  # only the last rank tells
    assert lost in told + engine[1 - dies].text()
    again = two(start, "dense-2", f"{model}@v2", meet="again")
    for rank in range(RANKS):
        assert is_on(again[rank], second[rank])
        assert f"attached {model}@v2" in again[rank].text()


def test_one_rank_reads_other_bytes(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "differ@v1")
    two(start, "dense-2", "differ@v2")
    first = [rank.ask("describe") for rank in engine]
    engine[0].ask("damage")
    failed = update(engine, "differ@v2")
    assert "rank 0 of this engine could not prepare differ@v2: Damaged: tensor" in failed
    assert [rank.ask("describe") for rank in engine] == first
    eventually(lambda: daemon.leases("differ@v2") == RANKS)  # of those who made it


def test_one_rank_is_busy(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "half@v1")
    two(start, "dense-2", "half@v2")
    prepare(engine[0], "another's", "half@v2")
    assert "rank 0 of this engine could not prepare half@v2: Busy" in update(engine, "half@v2")
    assert engine[1].ask("gpuwm_version")["version"] == "half@v1"
    engine[0].ask("gpuwm_settle", "another's", "old")
    assert update(engine, "half@v2") == ""
