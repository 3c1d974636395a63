"""Starts engines for a test, and ends them."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import distributions, engines
from .engines import Engine, Job

LOG_MAX = 4000  # characters
Start = Callable[..., Engine]


@contextlib.contextmanager
def installed(folder: pathlib.Path, groups: dict[str, dict[str, dict[str, str]]]) -> Iterator[None]:
    """Inside, the fork server, and with it every engine, finds gpuwm's entry points. groups: of
    entry points, by the names of other distributions."""
    for name, entry_points in {distributions.OWN: distributions.own(), **groups}.items():
        distributions.write(folder, name, entry_points)
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{folder}"
    yield
    sys.path.remove(str(folder))


@contextlib.contextmanager
def starting(
    folder: pathlib.Path, checkpoints: pathlib.Path, serving: str, model: str
) -> Iterator[Start]:
    """Gives a function that starts engines. The engines end with the context.

    start("dense", load_format="gpuwm", rank=1, …) starts an engine that loads a kind of model; its
    named arguments are those of the engine, `extra` is its model_loader_extra_config, `environment`
    variables to set, or None to unset, `changed` what a test sets in the finished configuration.

    - folder: for logs, and for the files by which ranks meet.
    - serving: the module that loads. model: the engine's argument for the checkpoint.
    """
    started: list[Engine] = []
    numbers = itertools.count()

    def start(
        kind: str,
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
            {model: str(checkpoints / kind), **arguments},
            str(folder / (meet or f"meet{number}")),
            rank,
            {**where, **(environment or {})},
            changed or {},
            serving,
        )
        started.append(Engine(job, folder / f"log{number}"))
        return started[-1]

    yield start
    for each in started:
        end(each)


def end(engine: Engine) -> None:
    engine.kill()
    print(f"--- {engine.pid}\n{engine.text()[-LOG_MAX:]}")  # shown if the test failed


def write_models(folder: pathlib.Path) -> pathlib.Path:
    """`models.write_all`, in a process of its own: this one imports no transformers."""
    process = engines.processes.Process(target=_write_models, args=(folder,))
    process.start()
    process.join()
    assert process.exitcode == 0
    return folder


def _write_models(folder: pathlib.Path) -> None:
    from . import models

    models.write_all(folder)
