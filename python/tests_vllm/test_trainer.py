"""A trainer publishes in the layout that engines use, and they move to what it made."""

from __future__ import annotations

import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import Daemon, eventually, running

from tests_engines.comparing import described_differences
from tests_engines.engines import Engine, Failed
from tests_engines.starting import Start

from .test_switching import RANKS, built, is_on
from .test_transfer import TRANSFER, following, two, update
from .trainers import Trainer

# kind of model, and the arguments of engines and publisher
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "tied": ("tied", {}),
    "experts": ("experts", {}),
    "latent": ("latent", {}),
    "dense as fp8": ("dense", {"quantization": "fp8"}),
    "fp8 checkpoint": ("fp8", {}),
}
PLACED = ("dense", "tied")  # post-processing leaves their parameters where they are


def tags(daemon: Daemon, model: str) -> list[str]:
    """Of ready versions."""
    rows = daemon.admin.list(model)["versions"]
    return sorted(row["tag"] for row in rows if row["state"] == "ready")


@pytest.mark.parametrize("name", MODELS)
def test_engines_move_to_what_a_trainer_made(
    daemon: Daemon, start: Start, trainer: Trainer, name: str
) -> None:
    kind, arguments = MODELS[name]
    model = name.replace(" ", "-")
    engine = following(start, f"{model}@step-0", kind, **arguments)
    own = start(f"{kind}-2", **arguments)
    trainer.call("open", model, kind, like=f"{model}@step-0", **arguments)
    found = trainer.call("publish", "step-1", f"{kind}-2")
    assert found["version"] == f"{model}@step-1"
    if name in PLACED:
        assert found["copied"] < found["bytes"] / 10, "vLLM did not load into the version"
    first = engine.ask("describe")
    assert update([engine], f"{model}@step-1") == ""
    assert is_on(engine, own)
    # With parameters as large as those of real models nothing is placed, and all is copied.
    trainer.call("open", model, kind, like=f"{model}@step-1", small=1 << 20, **arguments)
    assert trainer.call("publish", "step-2", kind)["copied"] > found["bytes"] / 2
    assert update([engine], f"{model}@step-2") == ""
    assert described_differences(engine.ask("describe"), first) == []


def test_a_new_engine_starts_on_it(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    built(start, "dense", "fresh@step-0")
    trainer.call("open", "fresh", "dense")
    trainer.call("publish", "step-1", "dense-2", alias="prod")
    extra = {"ref": "fresh@prod", "mode": "load"}
    engine = start("dense", load_format="gpuwm", extra=extra)
    assert engine.loaded() == start("dense-2").loaded()
    assert "made by a trainer with vLLM" in engine.text()


def test_engines_that_compile(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    arguments: dict[str, Any] = {"enforce_eager": False}
    engine = following(start, "compiled@step-0", **arguments)
    trainer.call("open", "compiled", "dense", **arguments)
    trainer.call("publish", "step-1", "dense-2")
    usage = trainer.call("usage")
    trainer.call("publish", "step-2", "dense-2")
    assert trainer.call("usage") == usage
    assert update([engine], "compiled@step-2") == ""
    assert is_on(engine, start("dense-2", **arguments))


@pytest.mark.parametrize("kind", ["dense", "experts"])
@pytest.mark.parametrize("how", ["mapping", "pairs", "function"])
def test_a_part_for_each_rank(
    daemon: Daemon, start: Start, trainer: Trainer, kind: str, how: str
) -> None:
    model = f"{kind}-{how}"
    engine = two(start, kind, f"{model}@step-0")
    own = [
        start(f"{kind}-2", rank=rank, meet="own", tensor_parallel_size=RANKS)
        for rank in range(RANKS)
    ]
    trainer.call("open", model, kind, tensor_parallel_size=RANKS)
    trainer.call("publish", "step-1", f"{kind}-2", how=how)
    assert update(engine, f"{model}@step-1") == ""
    for rank in range(RANKS):
        assert engine[rank].ask("describe") == own[rank].loaded()
    with pytest.raises(Failed, match="Invalid: a dict_itemiterator gives its tensors once"):
        trainer.call("publish", "step-2", kind, how="generator")
    assert tags(daemon, model) == ["step-0", "step-1"]


def test_two_engines_follow_a_trainer(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    """What was retired is freed as soon as the engines have left it, and nothing piles up."""
    engines = [following(start, "policy@step-0")]
    extra = {"ref": "policy@step-0", "mode": "load"}
    engines.append(start("dense", load_format="gpuwm", extra=extra, **TRANSFER))
    own = {kind: start(kind).loaded() for kind in ("dense", "dense-2")}
    trainer.call("open", "policy", "dense", keep_last=2)
    usage: dict[str, int] = {}
    for step in range(1, 11):
        kind = "dense-2" if step % 2 else "dense"
        trainer.call("publish", f"step-{step}", kind, alias="prod")
        for engine in engines:
            assert update([engine], "policy@prod") == ""
            assert engine.ask("describe") == own[kind]
        if step == 3:
            usage = trainer.call("usage")
    assert trainer.call("usage") == usage
    assert usage["groups"] == 0, "the trainer's own groups are as before"
    eventually(lambda: tags(daemon, "policy") == ["step-0", "step-10", "step-9"])
    assert len(daemon.admin.list("policy")["versions"]) == 3


def test_a_trainer_with_a_process_group(
    daemon: Daemon, start: Start, trainer: Trainer, tmp_path: pathlib.Path
) -> None:
    engine = two(start, "experts", "grouped@step-0")
    trainer.call("join_group", str(tmp_path / "group"))
    trainer.call("open", "grouped", "experts", tensor_parallel_size=RANKS)
    trainer.call("publish", "step-1", "experts-2")
    assert trainer.call("group_size") == 1
    assert update(engine, "grouped@step-1") == ""


def test_what_an_alias_names_is_not_retired(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    built(start, "dense", "named@step-0")
    trainer.call("open", "named", "dense", keep_last=1)
    trainer.call("publish", "step-1", "dense", alias="best")
    trainer.call("publish", "step-2", "dense")
    assert "an older version stays in memory" in trainer.text()
    assert tags(daemon, "named") == ["step-0", "step-1", "step-2"]
    daemon.admin.set_alias("named", "best", "step-2")
    trainer.call("publish", "step-3", "dense")
    eventually(lambda: tags(daemon, "named") == ["step-0", "step-2", "step-3"])


# ---- tensors that are wrong ---------------------------------------------------------------------

# change, and what the error says
WRONG = {
    "part missing": r"Mismatch: .*model.layers.1.self_attn.qkv_proj",
    "norm missing": r"model.norm.weight",
    "layer missing": r"model.layers.0.mlp.down_proj",
    "all missing": r"Mismatch",
    "other name": r"model.layers.1.self_attn.key.weight",
    "too large": r"Mismatch: tensor model.layers.1.self_attn.k_proj.weight \[64, 64\]",
    "too small": r"Mismatch: .*k_proj.weight \[31, 64\]",
    "turned": r"Mismatch: .*down_proj.weight \[128, 64\]",
    "integers": r"Mismatch: tensor .*k_proj.weight is torch.int8, and the model loads it as",
    "no tensor": r"Invalid: .*a int\) among the trainer's tensors",
    "no memory": r"Invalid: tensor .*k_proj.weight is a Tensor on meta",
}
HOWS = {
    "fails": "KeyError: .the test's trainer is broken",
    "number": "Invalid: a int as the trainer's tensors",
    "twice": "Invalid: tensor .* comes twice",
}


@pytest.mark.parametrize("arguments", [{}, {"quantization": "fp8"}], ids=["bfloat16", "fp8"])
@pytest.mark.parametrize("small", [1024, 1 << 20], ids=["placed", "copied"])
def test_wrong_tensors_make_no_version(
    daemon: Daemon, start: Start, trainer: Trainer, arguments: dict[str, Any], small: int
) -> None:
    model = f"wrong-{'-'.join(arguments) or 'plain'}-{small}"
    engine = following(start, f"{model}@step-0", **arguments)
    trainer.call("open", model, "dense", small=small, **arguments)
    for change, said in WRONG.items():
        with pytest.raises(Failed, match=said) as caught:
            trainer.call("publish", "step-1", "dense-2", change)
        print(change, caught.value)
    for how, said in HOWS.items():
        with pytest.raises(Failed, match=said):
            trainer.call("publish", "step-1", "dense-2", how=how)
    assert tags(daemon, model) == ["step-0"]
    trainer.call("publish", "step-1", "dense-2", how="looks")  # the name is free
    assert update([engine], f"{model}@step-1") == ""
    assert is_on(engine, start("dense-2", **arguments))


@pytest.mark.parametrize("change", ["float32", "gradients"])
def test_a_trainers_own_dtypes_and_gradients(
    daemon: Daemon, start: Start, trainer: Trainer, change: str
) -> None:
    engine = following(start, f"{change}@step-0")
    trainer.call("open", change, "dense")
    trainer.call("publish", "step-1", "dense-2", change)
    assert update([engine], f"{change}@step-1") == ""
    assert engine.ask("describe") == start("dense-2").loaded()


def test_bfloat16_for_a_model_of_fp8(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    built(start, "fp8", "eighth@step-0")
    trainer.call("open", "eighth", "fp8")
    with pytest.raises(Failed, match="is torch.bfloat16, and the model loads it as torch.float8"):
        trainer.call("publish", "step-1", "dense")
    with pytest.raises(Failed, match="o_proj.weight_scale is missing .* has other values"):
        trainer.call("publish", "step-1", "fp8-2", "scale missing")


@pytest.mark.filterwarnings("ignore")  # vLLM's imports warn
def test_tensors_that_lie_in_each_others_place() -> None:
    """As if post-processing had exchanged two parameters."""
    from gpuwm.vllm import fill, part_memory

    both = torch.arange(8, dtype=torch.uint8)
    memory: Any = object.__new__(part_memory.Memory)
    memory._bytes = {"one": both[:4], "other": both[4:]}
    memory._begin, memory._end = both.data_ptr(), both.data_ptr() + both.nbytes
    filled: Any = object.__new__(fill._Filling)
    filled._memory, filled._copied = memory, 0
    stored = [
        types.SimpleNamespace(name="one", whole=both[4:]),
        types.SimpleNamespace(name="other", whole=both[:4]),
    ]
    filled._copy(types.SimpleNamespace(stored=stored))
    assert both.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


# ---- another layout -----------------------------------------------------------------------------

OTHERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "dtype": ("dense", {"dtype": "float16"}, "Mismatch: .* in dtype: this publisher has"),
    "quantisation": ("dense", {"quantization": "fp8"}, "Mismatch: .* in quantization"),
    "model": ("tied", {}, "Mismatch: .* in config"),
    "ranks": ("dense", {"tensor_parallel_size": 2}, "Mismatch: .* in tp"),
    "pipeline": ("dense", {"pipeline_parallel_size": 2}, "Unsupported: .*pipeline_parallel_size"),
    "no version": ("dense", {"like": "layouts@none"}, "NotFound: .*layouts@none"),
    "tag": ("dense", {"name": "layouts@v1"}, "Invalid: name 'layouts@v1'"),
    "none kept": ("dense", {"keep_last": 0}, "Invalid: keep_last=0"),
}


def test_another_layout_is_refused(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    built(start, "dense", "layouts@step-0")
    for what, (kind, options, said) in OTHERS.items():
        given = {"name": "layouts", **options}
        with pytest.raises(Failed, match=said):
            trainer.call("open", given.pop("name"), kind, **given)
        print(what)
    built(start, "dense", "values@step-0", extra={"inner": "other-values"})
    trainer.call("open", "values", "dense")
    with pytest.raises(Failed, match="Mismatch: .*_k_scale_float: 0.25 here, 1.0 there"):
        trainer.call("publish", "step-1", "dense")
    assert tags(daemon, "values") == ["step-0"]


def test_other_kernels_are_refused(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    built(start, "dense", "kernels@step-0")
    trainer.call("choose_other_kernels")
    with pytest.raises(Failed, match='in backends.linear: this publisher has "Other x 9"'):
        trainer.call("open", "kernels", "dense")


def test_a_plain_checkpoint_is_no_layout(
    daemon: Daemon, checkpoints: pathlib.Path, trainer: Trainer
) -> None:
    import shutil

    shutil.copytree(checkpoints / "dense", daemon.models / "plain")
    daemon.load_folder("plain@files", daemon.models / "plain")
    with pytest.raises(Failed, match="Invalid: plain@files is no module image"):
        trainer.call("open", "plain", "dense", like="plain@files")


# ---- no room ------------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[Daemon]:
    """A gpuwmd with room for two versions of the dense model, and for one of two parts of a third.
    A version has 220 KiB, or two parts of 116 KiB each."""
    with running("--budget", "host=600K") as daemon:
        yield daemon


def used(daemon: Daemon) -> int:
    """Bytes of all versions, also of those that are being made."""
    (device,) = daemon.admin.status()["devices"]
    return int(device["used"])


@pytest.mark.parametrize("ranks", [1, RANKS])
def test_no_room(small: Daemon, start: Start, trainer: Trainer, ranks: int) -> None:
    """The publisher retires an old version only when the next one is ready. So both need room, also
    with keep_last=1."""
    engine = [following(start, "full@step-0")] if ranks == 1 else two(start, "dense", "full@step-0")
    trainer.call("open", "full", "dense", keep_last=1, tensor_parallel_size=ranks)
    trainer.call("publish", "step-1", "dense-2", alias="prod")
    assert update(engine, "full@step-1") == ""
    before, held = [rank.ask("describe") for rank in engine], used(small)
    for _ in range(2):
        with pytest.raises(Failed, match="NoRoom: no room on host: .* KiB asked for") as caught:
            trainer.call("publish", "step-2", "dense", alias="prod")
        assert re.search(r"retire.* or raise \[budget\] host", caught.value.text)
        eventually(lambda: used(small) == held)
    assert tags(small, "full") == ["step-0", "step-1"]
    assert update(engine, "full@prod") == ""
    assert [rank.ask("describe") for rank in engine] == before
    small.admin.remove_alias("full", "current")
    small.admin.retire("full@step-0", wait=30)
    trainer.call("publish", "step-2", "dense", alias="prod")
    assert update(engine, "full@prod") == ""
    assert [rank.ask("gpuwm_version")["version"] for rank in engine] == ["full@step-2"] * ranks


# ---- ends ---------------------------------------------------------------------------------------


def test_a_trainer_dies_in_a_publish(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    engine = following(start, "dies@step-0")
    first = engine.ask("describe")
    trainer.call("open", "dies", "dense")
    trainer.begin("publish", "step-1", "dense-2", how="stops", alias="prod")
    eventually(trainer.is_stopped, 60)
    assert len(daemon.admin.list("dies")["versions"]) == 2
    assert "TimedOut: dies@step-1 is not ready" in update([engine], "dies@step-1")
    trainer.kill()
    eventually(lambda: "failed" in [r["state"] for r in daemon.admin.list("dies")["versions"]])
    assert tags(daemon, "dies") == ["step-0"]
    assert "NotFound" in update([engine], "dies@prod")
    assert "Cancelled: dies@step-1 failed: its publisher" in update([engine], "dies@step-1")
    assert engine.ask("describe") == first


def test_a_trainer_dies_between_the_commits_of_two_parts(
    daemon: Daemon, start: Start, trainer: Trainer
) -> None:
    engine = two(start, "dense", "halved@step-0")
    trainer.call("open", "halved", "dense", tensor_parallel_size=RANKS)
    trainer.call("publish", "step-1", "dense-2", alias="prod")
    assert update(engine, "halved@prod") == ""
    before = [rank.ask("describe") for rank in engine]
    trainer.call("stop_after_a_commit")
    trainer.begin("publish", "step-2", "dense", alias="prod")
    eventually(trainer.is_stopped, 60)
    (row,) = [r for r in daemon.admin.list("halved")["versions"] if r["tag"] == "step-2"]
    assert (row["state"], [part["state"] for part in row["parts"]]) == (
        "building",
        ["ready", "building"],
    )
    assert "TimedOut: halved@step-2 is not ready" in update(engine, "halved@step-2")
    trainer.kill()
    eventually(lambda: "failed" in [r["state"] for r in daemon.admin.list("halved")["versions"]])
    assert tags(daemon, "halved") == ["step-0", "step-1"]
    assert update(engine, "halved@prod") == ""  # where it is already
    assert "Cancelled: halved@step-2 failed: its publisher" in update(engine, "halved@step-2")
    assert [rank.ask("describe") for rank in engine] == before


def test_a_tag_that_is_taken(daemon: Daemon, start: Start, trainer: Trainer) -> None:
    built(start, "dense", "taken@step-0")
    trainer.call("open", "taken", "dense")
    with pytest.raises(Failed, match="Exists"):
        trainer.call("publish", "step-0", "dense")
    trainer.call("publish", "step-1", "dense")
    trainer.call("close")
    with pytest.raises(Failed, match="Closed: the publisher was closed"):
        trainer.call("publish", "step-2", "dense")


def test_a_gpuwmd_that_is_killed_between_two(
    daemon: Daemon, start: Start, trainer: Trainer
) -> None:
    """The last test that needs its versions."""
    engine: Engine = following(start, "restart@step-0")
    trainer.call("open", "restart", "dense")
    trainer.call("publish", "step-1", "dense-2")
    daemon.kill()
    with pytest.raises(Failed, match="Unreachable|Disconnected"):
        trainer.call("publish", "step-2", "dense")
    daemon.start()
    trainer.call("publish", "step-2", "dense-2")
    assert update([engine], "restart@step-2") == ""
    assert engine.ask("describe") == start("dense-2").loaded()


def test_a_gpuwmd_that_is_killed_in_a_publish(
    daemon: Daemon, start: Start, trainer: Trainer
) -> None:
    """The last test that needs its versions."""
    engine = following(start, "inside@step-0")
    first = engine.ask("describe")
    trainer.call("open", "inside", "dense")
    trainer.begin("publish", "step-1", "dense-2", how="stops", alias="prod")
    eventually(trainer.is_stopped, 60)
    daemon.kill()
    daemon.start()
    trainer.go_on()
    assert trainer.answer()[:2] == ("failed", "Disconnected")
    assert "has ended: begin again" in trainer.text()
    assert engine.ask("describe") == first
    trainer.call("publish", "step-1", "dense-2", alias="prod")  # the tag is free
    assert update([engine], "inside@prod") == ""
    assert engine.ask("describe") == start("dense-2").loaded()
