"""Versions that are not there, or go; a gpuwmd that is not there; what is refused."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
from conftest import Daemon, eventually

from tests_engines.comparing import differences
from tests_engines.engines import Engine
from tests_engines.starting import Start

from . import installed


def attacher(start: Start, ref: str) -> Engine:
    return start("dense", load_format="gpuwm", extra={"ref": ref, "mode": "load"})


def build(start: Start, ref: str, **arguments: Any) -> Engine:
    engine = start("dense", load_format="gpuwm", extra={"ref": ref}, **arguments)
    engine.loaded()
    return engine


def test_load_without_a_version(daemon: Daemon, start: Start) -> None:
    failed = attacher(start, "nothing@v1").failed()
    assert failed.error == "NotFound"
    assert "let an engine build it first" in failed.text


def test_a_version_that_is_retired_while_an_engine_attaches(daemon: Daemon, start: Start) -> None:
    holder = build(start, "old@v1")
    daemon.admin.remove_alias("old", "current")
    held = start(
        "dense",
        load_format="gpuwm",
        extra={"ref": "old@v1", "mode": "load"},
        stop="before-install",
    )
    eventually(held.is_stopped, 60)
    daemon.admin.retire("old@v1")
    assert attacher(start, "old@v1").failed().error == "NotFound"
    held.go_on()
    assert differences(holder, held) == []  # its lease keeps the memory
    assert held.ask("shared")


def test_no_gpuwmd(daemon: Daemon, start: Start, tmp_path: pathlib.Path) -> None:
    away = {"GPUWM_SOCKET": str(tmp_path / "nobody.sock")}
    failed = start("dense", load_format="gpuwm", extra={"ref": "m@v1"}, environment=away).failed()
    assert failed.error == "Unreachable"
    assert "nobody.sock" in failed.text
    extra = {"ref": "m@v1", "fallback": "auto"}
    alone = start("dense", load_format="gpuwm", extra=extra, environment=away)
    assert differences(start("dense"), alone) == []
    assert "memory of this engine alone" in alone.text()
    assert not alone.ask("shared")


def test_raw_reads_a_checkpoint_that_gpuwm_holds(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path
) -> None:
    folder = daemon.models / "files"
    shutil.copytree(checkpoints / "dense", folder)
    daemon.load_folder("files@v1", folder)
    extra = {"ref": "files@v1", "mode": "raw"}
    builder = start("dense", load_format="gpuwm", extra=extra)
    assert differences(start("dense"), builder) == []
    assert "from files@v1 on host" in builder.text()
    other = start("dense", load_format="gpuwm", extra=extra)
    assert differences(builder, other) == []
    assert "attached dense@sglang-" in other.text()


def test_raw_takes_the_layer_of_a_draft(daemon: Daemon, start: Start) -> None:
    """Of a draft of several layers each engine loads one, under the first one's name."""
    names = ["model.mtp.layers.0.w", "model.mtp.layers.1.w", "model.norm.w"]
    engine = start("dense")
    assert engine.ask("draft", 1, names) == {"model.mtp.layers.0.w": 1, "model.norm.w": 2}
    assert engine.ask("draft", None, names) == {name: n for n, name in enumerate(names)}


def test_weights_that_are_shared_are_not_updated(
    daemon: Daemon, start: Start, checkpoints: pathlib.Path
) -> None:
    engine = build(start, "fixed@v1")
    done, text = engine.ask("update", str(checkpoints / "dense-2"), "auto")
    assert not done
    assert "the weights of this engine are fixed@v1" in text
    assert engine.ask("describe") == engine.loaded()
    own = start("dense")
    done, text = own.ask("update", str(checkpoints / "dense-2"), "auto")
    assert done, text
    assert own.ask("describe") == start("dense-2").loaded()


# arguments of the engine, its extra configuration, and what the error names
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "EPLB": ({"changed": {"enable_eplb": True}}, {}, "--enable-eplb"),
    "offload": ({"changed": {"cpu_offload_gb": 1}}, {}, "--cpu-offload-gb"),
    "groups": ({"changed": {"offload_group_size": 2}}, {}, "--offload-group-size 2"),
    "memory saver": ({"changed": {"enable_memory_saver": True}}, {}, "--enable-memory-saver"),
    "machines": ({"changed": {"nnodes": 2}}, {}, "--nnodes 2"),
    "seed": (
        {"changed": {"remote_instance_weight_loader_start_seed_via_transfer_engine": True}},
        {},
        "--remote-instance-weight-loader-start-seed-via-transfer-engine",
    ),
    "GGUF": ({}, {"inner": "gguf"}, "GGUF"),
    "remote": ({}, {"inner": "remote"}, "a plain checkpoint"),
    "a key of vLLM's": ({}, {"engines": 2}, "'engines'"),
    "a key that is none": ({}, {"reff": "llama@v1"}, '"ref"'),
    "a ref without a tag": ({}, {"ref": "llama"}, "needs a tag"),
}
# of some releases: the first one and the last one, the argument, a value
SOME = (
    (16, 17, "torchao_config", "int4wo-128", "--torchao-config"),
    (17, 99, "weight_cache_mode", "client", "--weight-cache-mode client"),
    (17, 99, "dwdp_size", 2, "--dwdp-size 2"),
    (18, 99, "startup_weight_load_mode", "overlap", "--startup-weight-load-mode overlap"),
    (20, 99, "ple_offload_embedding", True, "--ple-offload-embedding"),
    (23, 99, "enable_paged_experts", True, "--enable-paged-experts"),
)
for first, last, name, value, option in SOME:
    if first <= installed.VERSION[2] <= last:
        REFUSED[name] = ({"changed": {name: value}}, {}, option)


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_name(daemon: Daemon, start: Start, what: str) -> None:
    arguments, extra, named = REFUSED[what]
    failed = start("dense", load_format="gpuwm", extra=extra, **arguments).failed()
    assert failed.error in ("Unsupported", "Invalid"), failed.trace
    assert named in failed.text
