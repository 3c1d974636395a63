"""Nothing writes into weights that are shared; a SGLang of which gpuwm does not know that is
refused, and works without gpuwm."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import Daemon

from tests_engines.comparing import differences
from tests_engines.engines import Engine, Job
from tests_engines.starting import Start

from . import adapters, installed, renaming

COMPONENTS = "sglang.srt.model_executor.model_runner_components"
UPDATER = f"{COMPONENTS}.weight_updater.WeightUpdater"
MANAGER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
CHECKER = "sglang.srt.utils.weight_checker.WeightChecker"
EPLB = "sglang.srt.eplb.expert_location_updater.ExpertLocationUpdater"
LOADER = "sglang.srt.model_loader.loader.get_model_loader"


def build(start: Start, ref: str) -> Engine:
    engine = start("dense", load_format="gpuwm", extra={"ref": ref})
    engine.loaded()
    return engine


NEVER_CALLED = {"begin on a rank", "receive on a rank", "end on a rank"}  # if "begin" is refused
RAISES = {
    *NEVER_CALLED,
    *("reset", "EPLB", "backup", "transfers of the backup", "the model's own function"),
}
READS = {"look", "release and resume"}


def test_no_request_writes_into_shared_weights(daemon: Daemon, start: Start) -> None:
    engine = build(start, "fixed@v1")
    for what in engine.ask("requests"):
        became, text = engine.ask("write", what)
        if what in READS:
            assert became == "done", text
        elif became != "none":
            assert became == ("raised" if what in RAISES else "refused"), (what, text)
            assert "the weights of this engine are fixed@v1" in text, (what, text)
        assert engine.ask("describe") == engine.loaded(), what
    present = {what for what in engine.ask("requests") if engine.ask("write", what)[0] != "none"}
    assert ("begin" in present) == installed.HAS_SESSIONS


def test_an_adapter_lies_beside_shared_weights(
    daemon: Daemon, start: Start, tmp_path: pathlib.Path
) -> None:
    adapters.write(tmp_path, hidden_size=64)
    lora = {"changed": {"enable_lora": True}}
    for engine in (
        start("dense", **lora),
        start("dense", load_format="gpuwm", extra={"ref": "adapted@v1"}, **lora),
    ):
        before = engine.ask("digests")
        assert engine.ask("adapt", str(tmp_path)) == "torch_native"
        assert engine.ask("digests") == before


def test_weights_of_the_engine_s_own_are_written(daemon: Daemon, start: Start) -> None:
    alone = {"GPUWM_SOCKET": "/nowhere/gpuwm.sock"}
    extra = {"ref": "m@v1", "fallback": "auto"}
    guarded = start("dense", load_format="gpuwm", extra=extra, environment=alone)
    for engine in (guarded, start("dense")):
        for what in ("tensor", "reset", "the model's own function"):
            became, text = engine.ask("write", what)
            assert became == "done", text


# what SGLang calls its functions, in another release
NAMES = {
    "disk": (f"{UPDATER}.update_weights_from_disk", "update_weights_from_storage"),
    "tensor": (f"{UPDATER}.update_weights_from_tensor", "write_tensors"),
    "ipc": (f"{UPDATER}.update_weights_from_ipc", "_update_weights_from_ipc"),
    "groups": (f"{UPDATER}.destroy_weights_update_group", "write_the_last_group"),
    "answers": (f"{MANAGER}.update_weights_from_disk", "pull_weights"),
    "checker": (f"{CHECKER}.handle", "act"),
    "class": (UPDATER, "WeightWriter"),
    "EPLB": (f"{EPLB}.update", "rearrange"),
    "loader": (LOADER, "get_model_loader"),
}
if not installed.HAS_SESSIONS:
    trained = f"{UPDATER}.update_weights_from_distributed"
else:
    trained = f"{UPDATER}.load_weights_from_distributed"
    NAMES["begin"] = (f"{MANAGER}.begin_weight_update", "open_weight_update")
    NAMES["end on a rank"] = (f"{UPDATER}.end_weight_update", "finish_weight_update")
NAMES["distributed"] = (trained, "load_weights_from_trainer")


@pytest.mark.parametrize("what", NAMES)
def test_a_function_with_another_name(daemon: Daemon, start: Start, what: str) -> None:
    path, name = NAMES[what]
    ref = f"renamed-{what.replace(' ', '-')}@v1"
    build(start, ref).kill()
    renamed = renaming.given(path, name)
    extra = {"ref": ref, "mode": "load"}
    failed = start("dense", load_format="gpuwm", extra=extra, environment=renamed).failed()
    assert failed.error == "Unsupported", failed.trace
    shown = path if name.startswith("_") or path in (UPDATER, LOADER) else name
    assert shown in failed.text
    assert f"SGLang {installed.TEXT}" in failed.text
    assert daemon.leases(ref) == 0
    assert differences(start("dense"), start("dense", environment=renamed)) == []


LOAD_TWICE = "from tests_sglang import prepared\nfrom tests_sglang import copied\ncopied.main()"


def test_a_copy_of_sglang_with_another_name(
    daemon: Daemon, checkpoints: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations is not None
    (folder,) = found.submodule_search_locations
    left_out = shutil.ignore_patterns("multimodal_gen", "test")
    copy = tmp_path / "site" / "sglang"
    shutil.copytree(folder, copy, copy_function=os.symlink, ignore=left_out)
    file = copy.joinpath(*UPDATER.split(".")[1:-1]).with_suffix(".py")
    text = file.read_text()
    file.unlink()
    file.write_text(text.replace("def update_weights_from_tensor", "def write_tensors"))

    job = Job(
        {
            "model_path": str(checkpoints / "dense"),
            "load_format": "gpuwm",
            "model_loader_extra_config": {"ref": "copied@v1"},
        },
        str(tmp_path / "meet"),
        environment={"GPUWM_SOCKET": os.environ["GPUWM_SOCKET"]},
    )
    given = dataclasses.asdict(job)
    del given["serving"]
    path = f"{copy.parent}:{os.environ['PYTHONPATH']}"
    ran = subprocess.run(
        [sys.executable, "-c", LOAD_TWICE, json.dumps(given)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shared, own = ran.stdout.splitlines()
    assert shared.startswith("Unsupported: ")
    assert f"SGLang {installed.TEXT}" in shared
    assert f"gpuwm does not know {UPDATER}.write_tensors, which may write" in shared
    assert f"it has no {UPDATER}.update_weights_from_tensor" in shared
    assert own == "loaded"
    assert daemon.admin.list("copied")["versions"] == []
