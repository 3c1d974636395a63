"""Calls of builders on threads of their own."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .._shown.progress import Progress

T = TypeVar("T")

# Builders mostly wait, for files or for another process. More at once would not make them faster.
THREADS = 8


Tell = Callable[[Progress], None]


class Build(concurrent.futures.Future[T]):
    """A call of a builder. `cancel` works as long as it is queued.

    progress: how far it is. Its phases are "queued" (for a thread), "waiting" (another process
    builds it), "building" (the function runs), "publishing" (done of total bytes), "attaching",
    "done" and "failed".
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.progress: Progress = Progress("build", name, "queued")

    def __repr__(self) -> str:
        return f"<gpuwm.builders.Build {self.progress.name}: {self.progress.phase}>"

    def tell(self, progress: Progress) -> None:
        self.progress = progress


_here = threading.local()


def _begin_thread() -> None:
    _here.is_ours = True


@functools.cache
def _executor() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(THREADS, "gpuwm builder", _begin_thread)


os.register_at_fork(after_in_child=_executor.cache_clear)


def submitted(name: str, call: Callable[[Tell], T]) -> Build[T]:
    """Runs the call on a thread, which has this thread's GPU. A call from such a thread runs there
    at once: if all threads waited for calls in the queue, they would wait for ever. name: of the
    version that the call returns."""
    build: Build[T] = Build(name)
    device = torch.cuda.current_device() if _has_cuda() else None
    if getattr(_here, "is_ours", False):
        _run(build, call, device)
    else:
        _executor().submit(_run, build, call, device)
    return build


def _has_cuda() -> bool:
    """To ask for the current GPU would start CUDA."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _run(build: Build[Any], call: Callable[[Tell], Any], device: int | None) -> None:
    if not build.set_running_or_notify_cancel():
        return
    try:
        if device is not None:
            torch.cuda.set_device(device)
        result = call(build.tell)
    except BaseException as error:
        build.set_exception(error)
        return
    build.set_result(result)
