"""Engines of SGLang, each in a process of its own, and a gpuwmd for each test module."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Daemon, daemon  # noqa: F401  (the fixture of the tests without an engine)

from tests_engines import engines, starting
from tests_engines.engines import Engine
from tests_engines.starting import Start

from . import STOP

SERVING = "tests_sglang.serving"


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the fork server, and with it every engine, begins with."""
    os.environ.update(HF_HUB_OFFLINE="1", SGLANG_CACHE_DIR=str(tmp_path_factory.mktemp("cache")))
    engines.preload("tests_sglang.prepared", SERVING)
    with starting.installed(tmp_path_factory.mktemp("site"), {}):
        yield


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, _environment: None) -> pathlib.Path:
    """The folder of `tests_engines.models.write_all`."""
    return starting.write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def start(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Start]:
    """`tests_engines.starting.starting`, with the arguments of ServerArgs. stop: a moment of
    `stopping`."""
    with starting.starting(tmp_path, checkpoints, SERVING, "model_path") as found:

        def engine(
            kind: str,
            *,
            stop: str | None = None,
            environment: dict[str, str | None] | None = None,
            **arguments: Any,
        ) -> Engine:
            return found(kind, environment={STOP: stop, **(environment or {})}, **arguments)

        yield engine
