"""The process of one engine, as far as it is the same in all engines."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from .engines import Job

PR_SET_PDEATHSIG = 1
Answering = Callable[..., Any]  # takes what a test asks, and arguments


def begin(log: str, job: Job) -> None:
    """Makes this process end with the test, write to the log, and have the job's environment."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    for name, value in job.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def serve(pipe: Connection, load: Callable[[], tuple[str, Answering]]) -> None:
    """Loads a model, tells over the pipe what became of it, and then answers until the pipe ends.

    load: returns the model's description, and what answers the test. Sends ("loaded", the
    description) or ("failed", the error's class, its text, its traceback). After a load the test
    sends what it asks, with arguments.
    """
    try:
        description, answer = load()
        pipe.send(("loaded", description))
        while True:
            pipe.send(answer(*pipe.recv()))
    except EOFError:
        pass  # the test is over
    except BaseException as error:
        traceback.print_exc()
        pipe.send(("failed", type(error).__name__, str(error), traceback.format_exc()))
    end()


def end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def describe(model: torch.nn.Module, opaque: tuple[str, ...]) -> str:
    """gpuwm.image's description of the model, as JSON."""
    from gpuwm import image

    return image.describe(model, opaque=opaque).to_json()


def is_shared(model: torch.nn.Module) -> bool:
    """Whether every parameter lies in memory of gpuwm's, whose pages are a memfd's."""
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    spans = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/memfd:" in line:
                begin, end = line.split()[0].split("-")
                spans.append((int(begin, 16), int(end, 16)))
    return all(any(begin <= at < end for begin, end in spans) for at in addresses)
