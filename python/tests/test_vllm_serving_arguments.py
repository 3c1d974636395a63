"""The arguments of an engine that can stand by."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

import pytest

import gpuwm
from gpuwm.vllm import __main__ as commands
from gpuwm.vllm import serving_arguments as arguments
from gpuwm.vllm import settings

EXTRA = "--model-loader-extra-config"


@pytest.fixture
def lock(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "lock")


def extra_of(found: list[str]) -> dict[str, Any]:
    assert found.count(EXTRA) == 1
    extra: dict[str, Any] = json.loads(found[found.index(EXTRA) + 1])
    settings.parse(extra)
    return extra


def test_what_an_engine_needs_is_added(lock: str) -> None:
    found = arguments.complete(lock, ["m", "--port", "8001", "-tp", "2"])
    assert found[:5] == ["m", "--port", "8001", "-tp", "2"]
    assert found[found.index("--load-format") + 1] == "gpuwm"
    assert found[found.index("--worker-cls") + 1] == "gpuwm.vllm.Worker"
    assert found[-2:] == ["--middleware", "gpuwm.vllm.gate.Gate"]
    assert extra_of(found) == {"standby": lock}


def test_what_is_there_stays(lock: str) -> None:
    given = ["m", "--load_format=gpuwm", "--worker-cls", "gpuwm.vllm.Worker", "--middleware", "a.B"]
    found = arguments.complete(lock, [*given, f"{EXTRA}={json.dumps({'ref': 'm@v1'})}"])
    assert found[: len(given)] == given
    assert "--load-format" not in found
    assert found.count("--worker-cls") == 1
    assert extra_of(found) == {"ref": "m@v1", "standby": lock}
    found = arguments.complete(
        lock, ["m", EXTRA.replace("-", "_").replace("__", "--"), "{}", "-q", "x"]
    )
    assert extra_of(found) == {"standby": lock}
    assert found[:3] == ["m", "-q", "x"]


def test_a_lock_is_told_by_its_whole_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert extra_of(arguments.complete("lock", ["m"])) == {"standby": str(tmp_path / "lock")}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--api-server-count", "2"], "--api-server-count 2 can't stand by"),
        (["-asc=2"], "--api-server-count 2 can't stand by"),
        (["--data_parallel_size=2"], "--data-parallel-size 2 can't stand by"),
        (["-dp", "2"], "--data-parallel-size 2 can't stand by"),
        (["--data-parallel-rank", "0"], "--data-parallel-rank can't stand by"),
        (["-dpl", "1"], "--data-parallel-l can't stand by"),
        (["--headless"], "--headless can't stand by"),
        (["--grpc"], "--grpc can't stand by"),
        (["--kv-transfer-config", "{}"], "KV connector registers"),
        (["--kv-offloading-size", "4"], "KV connector registers"),
        (["--load-format", "auto"], '"inner" in'),
        (["--worker-cls=a.B"], "--worker-cls a.B can't stand by"),
        (["--nnodes", "2"], "--nnodes 2 can't stand by"),
        (["-n", "2"], "--nnodes 2 can't stand by"),
        (["--distributed-executor-backend", "ray"], "backend ray can't stand by"),
        ([EXTRA, '{"fallback": "auto"}'], '"fallback" in'),
    ],
)
def test_an_engine_that_can_not_stand_by(lock: str, given: list[str], said: str) -> None:
    with pytest.raises(gpuwm.Unsupported) as caught:
        arguments.complete(lock, ["m", *given])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        ["--api-server-count", "1"],
        ["-dp", "1"],
        ["--distributed-executor-backend=mp"],
        ["--nnodes=1"],
    ],
)
def test_what_is_as_it_has_to_be_is_allowed(lock: str, given: list[str]) -> None:
    assert arguments.complete(lock, ["m", *given])[1 : 1 + len(given)] == given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([EXTRA, "ref"], "'ref' is no JSON object"),
        ([EXTRA, "[1]"], "is no JSON object"),
        ([EXTRA], "'' is no JSON object"),
        ([EXTRA, '{"standby": "/x"}'], "is what --lock says"),
        ([EXTRA + ".ref", "m@v1"], "give all of its keys at once"),
    ],
)
def test_a_loader_configuration_that_is_none(lock: str, given: list[str], said: str) -> None:
    with pytest.raises(gpuwm.Invalid) as caught:
        arguments.complete(lock, ["m", *given])
    assert said in str(caught.value)


def test_what_a_file_says_is_not_hidden(lock: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("model: m\nport: 8001\n")
    arguments.complete(lock, ["m", "--config", str(file)])
    arguments.complete(lock, ["m", "--config", str(tmp_path / "none.yaml")])  # vLLM says it
    for line in ("load-format: auto", "  model_loader_extra_config: {}", '"worker-cls": x.Y'):
        file.write_text(f"model: m\n{line}\n")
        with pytest.raises(gpuwm.Invalid, match="stands in .*config.yaml"):
            arguments.complete(lock, ["m", "--config", str(file)])


def test_a_folder_that_is_not_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(gpuwm.Invalid, match=f"needs the folder {tmp_path}/no, which is not there"):
        arguments.complete(f"{tmp_path}/no/lock", ["m"])


def test_another_frontend(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "0")
    arguments.complete(lock, ["m"])
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    with pytest.raises(gpuwm.Unsupported, match="VLLM_USE_RUST_FRONTEND in its environment"):
        arguments.complete(lock, ["m"])


def test_the_command_executes_the_server(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Executed(Exception):
        pass

    def execute(path: str, given: list[str]) -> None:
        assert path == sys.executable
        raise Executed(given)

    monkeypatch.setattr(os, "execv", execute)
    given = ["m", "--lo", "x", "-tp", "2", "--served-model-name", "a", "b"]
    with pytest.raises(Executed) as caught:
        commands.main(["standby", "--lock", lock, *given])
    (found,) = caught.value.args
    assert found[:4] == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
    assert found[4 : 4 + len(given)] == given


def test_errors_of_the_command(lock: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["standby", "--lock", lock, "m", "--headless"]) == 1
    assert "gpuwm.vllm: an engine with --headless can't stand by" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        commands.main(["standby", "m"])
    assert "--lock" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        commands.main(["takeover", "--lock", lock, "--port", "1"])
    assert "unrecognized arguments: --port 1" in capsys.readouterr().err
