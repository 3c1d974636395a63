"""Engines of vLLM move to other versions: the ranks' half of a switch, called as vLLM would."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Daemon, eventually

import gpuwm
import gpuwm.vllm
from tests_engines.comparing import described_differences, differences
from tests_engines.engines import Engine
from tests_engines.starting import Start

from .conftest import RELEASE

RANKS = 2


class Llm:
    """A vllm.LLM of these ranks, without a scheduler."""

    def __init__(self, *ranks: Engine) -> None:
        self.ranks, self.llm_engine, self.paused = ranks, self, False
        self.before_commit: Any = lambda: None

    def collective_rpc(self, method: str, args: tuple[str, ...]) -> list[Any]:
        if method == "gpuwm_commit":
            assert self.paused
            self.before_commit()
        return [rank.ask(method, *args) for rank in self.ranks]

    def has_unfinished_requests(self) -> bool:
        return False

    def is_sleeping(self) -> bool:
        return self.paused

    def sleep(self, level: int, mode: str) -> None:
        self.paused = True

    def wake_up(self, tags: list[str]) -> None:
        self.paused = False

    def reset_prefix_cache(self, **which: bool) -> bool:
        return True

    def reset_mm_cache(self) -> None:
        pass

    def reset_encoder_cache(self) -> None:
        pass


def built(start: Start, kind: str, ref: str, **options: Any) -> Engine:
    """An engine that has made this version, and is on it."""
    extra = {"ref": ref, **options.pop("extra", {})}
    engine = start(kind, load_format="gpuwm", extra=extra, **options)
    engine.loaded()
    return engine


def is_on(engine: Engine, other: Engine) -> bool:
    """Both have the same model, byte by byte, now."""
    return not described_differences(engine.ask("describe"), other.ask("describe"))


@pytest.mark.parametrize("kind", ["dense", "fp8"])
def test_an_engine_moves_and_comes_back(daemon: Daemon, start: Start, kind: str) -> None:
    first = built(start, kind, f"{kind}@v1")
    engine = start(kind, load_format="gpuwm", extra={"ref": f"{kind}@v1", "mode": "load"})
    second = built(start, f"{kind}-2", f"{kind}@v2")
    daemon.admin.set_alias(kind, "prod", "v2")
    llm = Llm(engine)
    found = gpuwm.vllm.switch(llm, f"{kind}@prod")
    assert (found.before, found.version, found.moved) == (f"{kind}@v1", f"{kind}@v2", True)
    assert is_on(engine, second)
    assert differences(first, start(kind)) == []  # others stay where they are
    eventually(lambda: daemon.leases(f"{kind}@v1") == 1)
    assert not gpuwm.vllm.switch(llm, f"{kind}@v2").moved
    gpuwm.vllm.switch(llm, f"{kind}@v1")
    assert is_on(engine, first)
    eventually(lambda: daemon.leases(f"{kind}@v2") == 1)
    assert not llm.paused


def test_the_kv_connector_is_told_of_moves(daemon: Daemon, start: Start) -> None:
    """KV of engines on one version has the same identity, also if one of them has built it."""
    first = built(start, "dense", "kv@v1")
    engine = start("dense", load_format="gpuwm", extra={"ref": "kv@v1", "mode": "load"})
    second = built(start, "dense-2", "kv@v2")
    again = built(start, "dense", "again@v1")  # of the same weights
    old, fields, _ = first.ask("kv")
    assert again.ask("kv") == (old, fields, 0)
    new, other_fields, _ = second.ask("kv")
    assert (old != new, fields) == (True, other_fields)
    assert engine.ask("kv") == (old, fields, 0)
    llm = Llm(engine)
    gpuwm.vllm.switch(llm, "kv@v2")
    assert engine.ask("kv") == (new, fields, 1)
    gpuwm.vllm.switch(llm, "kv@v1")
    assert engine.ask("kv") == (old, fields, 2)


@pytest.mark.parametrize("kinds", [("redundant", "contradicting"), ("contradicting", "redundant")])
def test_a_head_that_one_version_lacks_is_named(
    daemon: Daemon, start: Start, kinds: tuple[str, str]
) -> None:
    """Since vLLM 0.29 a head that equals the embedding is the embedding, once it is loaded. Older
    releases read no head if config.json says that it is tied."""
    refs = [f"{kinds[0]}-first@v{number}" for number in (1, 2)]
    first, second = (built(start, kind, ref) for kind, ref in zip(kinds, refs, strict=True))
    engine = start(kinds[0], load_format="gpuwm", extra={"ref": refs[0], "mode": "load"})
    if RELEASE < (0, 29):
        gpuwm.vllm.switch(Llm(engine), refs[1])
        assert is_on(engine, second)
        return
    with pytest.raises(gpuwm.Mismatch, match="another layout: .* has a tensor lm_head.weight"):
        gpuwm.vllm.switch(Llm(engine), refs[1])
    assert is_on(engine, first)


def test_the_engine_that_built_moves_too(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "maker@v1")
    second = built(start, "dense-2", "maker@v2")
    gpuwm.vllm.switch(Llm(engine), "maker@v2")
    assert is_on(engine, second)
    daemon.admin.remove_alias("maker", "current")
    daemon.admin.retire("maker@v1", wait=30)


def two(start: Start, kind: str, ref: str) -> list[Engine]:
    ranks = [
        start(
            kind,
            rank=rank,
            meet=f"{kind}-{ref}",
            tensor_parallel_size=RANKS,
            load_format="gpuwm",
            extra={"ref": ref},
        )
        for rank in range(RANKS)
    ]
    for rank in ranks:
        rank.loaded()
    return ranks


def test_all_ranks_move(daemon: Daemon, start: Start) -> None:
    engine, second = two(start, "dense", "ranks@v1"), two(start, "dense-2", "ranks@v2")
    found = gpuwm.vllm.switch(Llm(*engine), "ranks@v2")
    assert found.ranks == RANKS
    for rank in range(RANKS):
        assert is_on(engine[rank], second[rank])


def test_a_switch_whose_place_was_taken_in_one_rank(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "torn@v1")
    first = [rank.ask("describe") for rank in engine]
    two(start, "dense-2", "torn@v2")
    llm = Llm(*engine)
    llm.before_commit = lambda: engine[1].ask("gpuwm_settle", token_of(engine[1]), "old")
    with pytest.raises(gpuwm.Cancelled, match="rank 1, could not exchange: another switch"):
        gpuwm.vllm.switch(llm, "torn@v2")
    assert llm.paused  # whoever took over resumes it; here nobody did, and rank 0 has moved
    engine[0].ask("gpuwm_settle", token_of(engine[0]), "old")
    assert [rank.ask("describe") for rank in engine] == first
    llm.before_commit, llm.paused = lambda: None, False
    assert gpuwm.vllm.switch(llm, "torn@v2").moved


def test_no_rank_moves_if_one_can_not_exchange(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "stuck@v1")
    first = engine[0].ask("describe")
    two(start, "dense-2", "stuck@v2")
    engine[1].ask("refuse_exchange")
    with pytest.raises(gpuwm.Busy, match="rank 1, could not exchange: as the test wants it"):
        gpuwm.vllm.switch(llm := Llm(*engine), "stuck@v2")
    assert engine[0].ask("describe") == first
    assert not llm.paused


def test_no_engine_goes_on_with_a_rank_that_has_no_memory(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "torn@v1")
    two(start, "dense-2", "torn@v2")
    engine[1].ask("refuse_exchange", 0, "Lost")
    with pytest.raises(gpuwm.Lost, match="start it again"):
        gpuwm.vllm.switch(llm := Llm(*engine), "torn@v2")
    assert llm.paused


def token_of(engine: Engine) -> str:
    return str(engine.ask("token"))


def test_a_rank_dies_before_the_exchange(daemon: Daemon, start: Start) -> None:
    engine = two(start, "dense", "dead@v1")
    second = two(start, "dense-2", "dead@v2")
    llm = Llm(*engine)
    llm.before_commit = engine[1].kill
    with pytest.raises(gpuwm.Lost, match="start it again"):
        gpuwm.vllm.switch(llm, "dead@v2")
    again = [
        start(
            "dense-2",
            rank=rank,
            meet="again",
            tensor_parallel_size=RANKS,
            load_format="gpuwm",
            extra={"ref": "dead@v2", "mode": "load"},
        )
        for rank in range(RANKS)
    ]
    for rank in range(RANKS):
        assert differences(again[rank], second[rank]) == []


def test_a_version_that_is_retired_between_the_two(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "retired@v1")
    second = built(start, "dense-2", "retired@v2")

    def retire() -> None:
        daemon.admin.remove_alias("retired", "current")
        daemon.admin.retire("retired@v2")

    llm = Llm(engine)
    llm.before_commit = retire
    assert gpuwm.vllm.switch(llm, "retired@v2").moved
    assert is_on(engine, second)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.vllm.switch(llm, "retired@v2")
    assert is_on(engine, second)


def refuses_what_is_gone(llm: Llm, engine: Engine, second: Engine, ref: str) -> None:
    """The engine stays on its version, and goes on. second: one that is on `ref`."""
    with pytest.raises(gpuwm.NotFound, match=f"{ref} is gone since"):
        gpuwm.vllm.switch(llm, ref)
    assert not is_on(engine, second)
    assert not llm.paused


def test_a_lease_that_is_revoked_between_the_two(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "revoked@v1")
    second = built(start, "dense-2", "revoked@v2")

    def revoke() -> None:
        for client in daemon.admin.clients():
            for lease in client["leases"]:
                if lease["tag"] == "v2":
                    daemon.admin.kick(lease["lease"])
        eventually(lambda: engine.ask("has_lost_the_other"))

    llm = Llm(engine)
    llm.before_commit = revoke
    refuses_what_is_gone(llm, engine, second, "revoked@v2")
    llm.before_commit = lambda: None
    assert gpuwm.vllm.switch(llm, "revoked@v2").moved
    assert is_on(engine, second)


def prepare(engine: Engine, token: str, ref: str, take_over: str = "no") -> Any:
    found = engine.ask("gpuwm_prepare", token, ref, "yes", take_over)
    if "error" not in found:
        eventually(lambda: not engine.ask("gpuwm_prepared", token).get("pending"))
    return found


def test_a_switch_that_has_not_ended(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "twice@v1")
    second = built(start, "dense-2", "twice@v2")
    prepare(engine, "a dead caller's", "twice@v2")
    with pytest.raises(gpuwm.Busy, match=r"began 0 s ago, and has not ended: .*--take-over"):
        gpuwm.vllm.switch(Llm(engine), "twice@v2")
    assert engine.ask("gpuwm_commit", "a dead caller's")["version"] == "twice@v2"
    found = gpuwm.vllm.switch(Llm(engine), "twice@v1", take_over=True)
    assert (found.before, found.version) == ("twice@v2", "twice@v1")
    assert engine.ask("gpuwm_commit", "a dead caller's")["error"] == "Cancelled"
    prepare(engine, "another's", "twice@v2")
    engine.ask("grow_old")
    assert gpuwm.vllm.switch(Llm(engine), "twice@v2").moved
    assert is_on(engine, second)
    eventually(lambda: daemon.leases("twice@v1") == 0)


def test_a_preparation_that_nobody_waits_for(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "left@v1")
    built(start, "dense-2", "left@v2")
    for round_ in range(5):
        engine.ask("gpuwm_prepare", f"token {round_}", "left@v2", "yes", "no")
        engine.ask("gpuwm_settle", f"token {round_}", "old")
    eventually(lambda: daemon.leases("left@v2") == 1)
    assert engine.ask("gpuwm_version")["version"] == "left@v1"


def test_a_gpuwmd_that_comes_back_without_the_version(daemon: Daemon, start: Start) -> None:
    """Between the two."""
    engine = built(start, "dense", "vanished@v1")
    second = built(start, "dense-2", "vanished@v2")

    def vanish() -> None:
        daemon.kill()
        daemon.start()
        eventually(lambda: engine.ask("has_lost_the_other"))

    llm = Llm(engine)
    llm.before_commit = vanish
    refuses_what_is_gone(llm, engine, second, "vanished@v2")


def test_a_gpuwmd_that_is_killed_between_the_two(daemon: Daemon, start: Start) -> None:
    """And again while the old lease is given back. The last test that needs its versions."""
    engine = built(start, "dense", "killed@v1")
    second = built(start, "dense-2", "killed@v2")
    llm = Llm(engine)
    llm.before_commit = daemon.kill
    assert gpuwm.vllm.switch(llm, "killed@v2").moved
    assert is_on(engine, second)
    with pytest.raises(gpuwm.Unreachable):
        gpuwm.vllm.switch(llm, "killed@v1")
    assert is_on(engine, second)
    daemon.start()


# kind, what differs in its start, and what the error names
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "dtype": ("dense", {"dtype": "float16"}, "dtype"),
    "quantisation": ("dense", {"quantization": "fp8"}, "quantization"),
    "model": ("tied", {}, "config"),
    "value": ("dense-2", {"extra": {"inner": "other-values"}}, "_k_scale_float: 1.0 here, 0.25"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_another_layout_is_refused(daemon: Daemon, start: Start, what: str) -> None:
    kind, options, named = REFUSED[what]
    engine = built(start, "dense", f"{what}@v1")
    first = engine.ask("describe")
    built(start, kind, f"{what}@v2", **options)
    with pytest.raises(gpuwm.Mismatch) as caught:
        gpuwm.vllm.switch(Llm(engine), f"{what}@v2")
    assert named in caught.value.message
    assert "start" in caught.value.detail
    assert engine.ask("describe") == first
    eventually(lambda: daemon.leases(f"{what}@v2") == 1)


def test_another_number_of_ranks_is_refused(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "ranked@v1")
    two(start, "dense-2", "ranked@v2")
    with pytest.raises(gpuwm.Mismatch, match="tp"):
        gpuwm.vllm.switch(Llm(engine), "ranked@v2")


def test_an_engine_with_weights_of_its_own(daemon: Daemon, start: Start) -> None:
    with pytest.raises(gpuwm.Unsupported, match="--load-format gpuwm"):
        gpuwm.vllm.switch(Llm(start("dense")), "m@v1")


def test_an_engine_of_several_replicas(daemon: Daemon, start: Start) -> None:
    engine = built(start, "dense", "replicas@v1")
    engine.ask("be_a_replica")
    with pytest.raises(gpuwm.Unsupported, match="data parallelism"):
        gpuwm.vllm.switch(Llm(engine), "replicas@v1")


@pytest.mark.filterwarnings("ignore")  # vLLM's imports warn
def test_vllm_has_what_a_switch_calls() -> None:
    """With the names of the arguments that `gpuwm.vllm.targets` gives."""
    import inspect

    from vllm import LLM
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.worker.gpu_worker import Worker

    for method, names in (
        (LLM.collective_rpc, {"method", "timeout", "args"}),
        (LLM.sleep, {"level", "mode"}),
        (LLM.wake_up, {"tags"}),
        (LLM.reset_prefix_cache, {"reset_running_requests", "reset_connector"}),
        (LLMEngine.has_unfinished_requests, set()),
        (LLMEngine.reset_mm_cache, set()),
        (LLMEngine.reset_encoder_cache, set()),
        (AsyncLLM.collective_rpc, {"method", "timeout", "args"}),
        (AsyncLLM.sleep, {"level", "mode"}),
        (AsyncLLM.pause_generation, {"mode", "clear_cache"}),
        (AsyncLLM.wake_up, {"tags"}),
        (Worker.get_model, set()),
    ):
        assert names <= set(inspect.signature(method).parameters), method.__qualname__
    # vLLM refuses an extension of which one name is its worker's already.
    own = {name for name in dir(gpuwm.vllm.Extension) if not name.startswith("__")}
    assert own & set(dir(Worker)) == set()
