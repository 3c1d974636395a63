"""Engines of SGLang, each in a process of its own, and a gpuwmd for each test module."""

from __future__ import annotations

import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Daemon, daemon  # noqa: F401  (the fixture of the tests without an engine)

from tests_vllm import distributions, engines
from tests_vllm.engines import Engine, Job

from . import STOP

SERVING = "tests_sglang.serving"
LOG_MAX = 4000  # characters
Start = Callable[..., Engine]


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the fork server, and with it every engine, begins with."""
    folder = tmp_path_factory.mktemp("site")
    distributions.write(folder, "gpuwm", distributions.own())
    sys.path.append(str(folder))
    os.environ.update(HF_HUB_OFFLINE="1", SGLANG_CACHE_DIR=str(tmp_path_factory.mktemp("cache")))
    os.environ["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{folder}"
    engines.preload("tests_sglang.prepared", SERVING)
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, _environment: None) -> pathlib.Path:
    """The folder of `tests_vllm.models.write_all`."""
    folder = tmp_path_factory.mktemp("models")
    engines.write_models(folder)
    return folder


@pytest.fixture
def start(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Start]:
    """start("dense", load_format="gpuwm", rank=1, …) starts an engine that loads a kind of model;
    its named arguments are those of ServerArgs, `extra` is its model_loader_extra_config,
    `environment` variables to set, or None to unset, `stop` a moment of `stopping`, `changed` what
    a test sets in the finished arguments."""
    started: list[Engine] = []
    numbers = itertools.count()

    def engine(
        model: str,
        *,
        rank: int = 0,
        meet: str | None = None,
        environment: dict[str, str | None] | None = None,
        extra: dict[str, Any] | None = None,
        stop: str | None = None,
        changed: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Engine:
        number = next(numbers)
        if extra is not None:
            arguments["model_loader_extra_config"] = extra
        given = {"GPUWM_SOCKET": os.environ.get("GPUWM_SOCKET"), STOP: stop}
        job = Job(
            {"model_path": str(checkpoints / model), **arguments},
            str(tmp_path / (meet or f"meet{number}")),
            rank,
            {**given, **(environment or {})},
            changed or {},
            SERVING,
        )
        started.append(Engine(job, tmp_path / f"log{number}"))
        return started[-1]

    yield engine
    for each in started:
        each.kill()
        print(f"--- engine {each.pid}\n{each.text()[-LOG_MAX:]}")  # shown if the test failed
