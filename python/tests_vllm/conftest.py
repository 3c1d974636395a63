"""Engines of vLLM, each in a process of its own, and a gpuwmd for each test module."""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Daemon, daemon  # noqa: F401  (the fixture of the tests without an engine)

from tests_engines import engines, starting
from tests_engines.engines import Job
from tests_engines.starting import Start

from .trainers import Trainer

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
}
PLUGINS = {
    "vllm.platform_plugins": {"loading": "tests_vllm.plugin:platform"},
    "vllm.general_plugins": {"gpuwm-tests": "tests_vllm.plugin:register"},
}
SERVING = "tests_vllm.serving"
# Newer than the release that the tests are pinned to.
NEW = not importlib.metadata.version("vllm").startswith("0.25.")
RELEASE = tuple(int(part) for part in importlib.metadata.version("vllm").split(".")[:2])


def pytest_sessionfinish() -> None:
    """vLLM closes some sockets only as Python's collector finds them, with a warning. What the last
    tests leave pytest would collect, and fail for, after all tests have passed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def serve_parser() -> Any:
    """The parser of `vllm serve`."""
    folders = ("common", "launchers", "openai")  # from the newest release to the oldest
    modules = (f"vllm.entrypoints.{folder}" for folder in folders)
    there = [each for each in modules if importlib.util.find_spec(each) is not None]
    found = [f"{each}.cli_args" for each in there if importlib.util.find_spec(f"{each}.cli_args")]
    cli_args: Any = importlib.import_module(found[0])
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return cli_args.make_arg_parser(FlexibleArgumentParser())


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the fork server, and with it every engine, begins with."""
    os.environ.update(ENVIRONMENT, VLLM_CACHE_ROOT=str(tmp_path_factory.mktemp("cache")))
    engines.preload(SERVING)
    with starting.installed(tmp_path_factory.mktemp("site"), {"gpuwm_tests_vllm": PLUGINS}):
        yield


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, _environment: None) -> pathlib.Path:
    """The folder of `tests_engines.models.write_all`."""
    return starting.write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def start(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Start]:
    """`tests_engines.starting.starting`, with the arguments of EngineArgs."""
    with starting.starting(tmp_path, checkpoints, SERVING, "model") as found:
        yield found


@pytest.fixture
def trainer(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Trainer]:
    """A process that publishes what is in the folder of checkpoints."""
    where = {"GPUWM_SOCKET": os.environ.get("GPUWM_SOCKET")}
    job = Job({"checkpoints": str(checkpoints)}, "", 0, where)
    made = Trainer(job, tmp_path / "trainer-log")
    yield made
    starting.end(made)
