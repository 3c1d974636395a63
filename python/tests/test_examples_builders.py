"""The programs of examples/builders/, with gpuwmd and without."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
import transformers
from conftest import DEVICE, Daemon, by_torch, eventually

pytestmark = by_torch

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples" / "builders"
START_S = 120  # torch and transformers, on a busy machine
ALONE = {"GPUWM_MODE": "local", "GPUWM_SOCKET": "/nowhere"}


def start(name: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    try:
        output, _ = process.communicate(timeout=START_S)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output.splitlines()


def run(name: str, *arguments: str, **environment: str) -> list[str]:
    return said(start(name, *arguments, **environment))


MODEL = "the model answers [[12.0, 12.0, 12.0, 12.0]]"
TABLE = "the table has the sum 28.0"
BUILDS = ["builds a model of 16 x 4", "builds a table of 8 rows"]


def test_shared_model(daemon: Daemon) -> None:
    both = [said(each) for each in [start("shared_model.py") for _ in range(2)]]
    lines = [line for each in both for line in each]
    assert [lines.count(line) for line in (*BUILDS, MODEL, TABLE)] == [1, 1, 2, 2]
    (entry,) = {each[-1] for each in both}
    assert re.fullmatch(r"shared_model\.linear@linear-16-4-[0-9a-f]{32}: ready", entry)
    assert len(daemon.admin.list("shared_model.linear")["versions"]) == 1


def test_shared_model_alone() -> None:
    first, model, second, table, entry = run("shared_model.py", **ALONE)
    assert [first, second, model, table] == [*BUILDS, MODEL, TABLE]
    assert entry.endswith(": local")


@pytest.mark.usefixtures("daemon")
def test_tasks() -> None:
    told, alone = (said(each) for each in (start("tasks.py"), start("tasks.py", **ALONE)))
    for lines in (told, alone):
        assert lines[-4:] == [
            "encoder has 36 values",
            "missing: there is no model 'missing'",
            "encoder answers (1, 4)",
            "decoder answers (1, 4)",
        ]
        phases = {line.removeprefix("encoder: ") for line in lines[:-4]}
        assert phases
        assert phases <= {"queued", "attaching", "waiting", "building", "publishing"}


@pytest.mark.usefixtures("daemon")
def test_pass_tensors() -> None:
    answer = ["times 2 is [0.0, 2.0, 4.0, 6.0]", "times 10 is [0.0, 10.0, 20.0, 30.0]"]
    assert run("pass_tensors.py") == run("pass_tensors.py", **ALONE) == answer


@pytest.mark.usefixtures("daemon")
def test_read_only() -> None:
    error, here, other = run("read_only.py")
    assert error.startswith("WriteError: add_ would write into base.weight")
    assert (here, other) == ("here: 0.0 16.0", "in another process: 0.0 0.0")
    assert run("read_only.py", **ALONE) == ["here: 16.0 16.0", other]


def test_release(daemon: Daemon) -> None:
    lines = run("release.py")
    states = [re.findall(r"'(ready|retiring|local)'", line) for line in lines]
    assert states[:2] == [["ready"], ["ready"]]
    assert states[3] == ["retiring", "ready"]
    eventually(lambda: daemon.admin.list("release.layer")["versions"] == [])
    lines = run("release.py", **ALONE)
    assert lines[2:4] == ["invalidated: []", "built anew: [('local', None)]"]


@pytest.mark.usefixtures("daemon")
def test_transformers_model(tmp_path: pathlib.Path) -> None:
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).to(DEVICE).save_pretrained(tmp_path)  # type: ignore[arg-type]
    loaded = run("transformers_model.py", str(tmp_path))
    attached = run("transformers_model.py", str(tmp_path), GPUWM_MODE="load")
    assert loaded[0] == "loads the files"
    assert attached[0].startswith("BertModel on ")
    assert attached[-1] == loaded[-1]
    assert run("transformers_model.py", str(tmp_path), **ALONE)[-1] == loaded[-1]


@pytest.mark.usefixtures("daemon")
def test_benchmark() -> None:
    for environment in ({}, {}, ALONE):
        phases, *lines = run("benchmark.py", "1", "64", **environment)
        assert phases.startswith("ends of phases: ")
        assert [line.partition(":")[0] for line in lines[:3]] == [
            "first call",
            "second call",
            "a copy of one's own",
        ]
        assert all(re.search(r": [0-9.]+ ms, [+-][0-9.]+ MiB$", line) for line in lines[:3])
        assert lines[3].startswith("0.2 MiB of weights on ")
