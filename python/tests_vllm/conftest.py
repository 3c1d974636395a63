"""Engines of vLLM, each in a process of its own, and a gpuwmd for each test module."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Daemon, daemon  # noqa: F401  (the fixture of the tests without an engine)

from tests_vllm import distributions, engines
from tests_vllm.engines import Engine, Job, Trainer

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
}
PLUGINS = {
    "vllm.platform_plugins": {"loading": "tests_vllm.plugin:platform"},
    "vllm.general_plugins": {"gpuwm-tests": "tests_vllm.plugin:register"},
}
LOG_MAX = 4000  # characters
# Newer than the release that the tests are pinned to.
NEW = not importlib.metadata.version("vllm").startswith("0.25.")
Start = Callable[..., Engine]


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the fork server, and with it every engine, begins with."""
    folder = tmp_path_factory.mktemp("site")
    distributions.write(folder, "gpuwm", distributions.own())
    distributions.write(folder, "gpuwm_tests_vllm", PLUGINS)
    sys.path.append(str(folder))
    os.environ.update(ENVIRONMENT, VLLM_CACHE_ROOT=str(tmp_path_factory.mktemp("cache")))
    os.environ["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{folder}"
    engines.preload("tests_vllm.serving")
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, _environment: None) -> pathlib.Path:
    """The folder of `models.write_all`."""
    folder = tmp_path_factory.mktemp("models")
    engines.write_models(folder)
    return folder


@pytest.fixture
def start(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Start]:
    """start("dense", load_format="gpuwm", rank=1, …) starts an engine that loads a kind of model;
    its named arguments are those of EngineArgs, `extra` is its model_loader_extra_config,
    `environment` variables to set, or None to unset, `changed` what a test sets in the finished
    configuration, where vLLM refuses it on a CPU."""
    started: list[Engine] = []
    numbers = itertools.count()

    def engine(
        model: str,
        *,
        rank: int = 0,
        meet: str | None = None,
        environment: dict[str, str | None] | None = None,
        extra: dict[str, Any] | None = None,
        changed: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Engine:
        number = next(numbers)
        if extra is not None:
            arguments["model_loader_extra_config"] = extra
        where = {"GPUWM_SOCKET": os.environ.get("GPUWM_SOCKET")}
        job = Job(
            {"model": str(checkpoints / model), **arguments},
            str(tmp_path / (meet or f"meet{number}")),
            rank,
            {**where, **(environment or {})},
            changed or {},
        )
        started.append(Engine(job, tmp_path / f"log{number}"))
        return started[-1]

    yield engine
    for each in started:
        each.kill()
        print(f"--- engine {each.pid}\n{each.text()[-LOG_MAX:]}")  # shown if the test failed


@pytest.fixture
def trainer(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Trainer]:
    """A process that publishes what is in the folder of checkpoints."""
    where = {"GPUWM_SOCKET": os.environ.get("GPUWM_SOCKET")}
    job = Job({"checkpoints": str(checkpoints)}, "", 0, where)
    made = Trainer(job, tmp_path / "trainer-log")
    yield made
    made.kill()
    print(f"--- trainer {made.pid}\n{made.text()[-LOG_MAX:]}")  # shown if the test failed
