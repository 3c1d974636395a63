"""Calls that wait, made on another thread, so that Ctrl-C and asyncio get their turn."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors

if TYPE_CHECKING:
    import concurrent.futures

T = TypeVar("T")

# The names of the threads: during a call, and while they wait for the next one.
IN_CALL, IDLE = "gpuwm wait", "gpuwm idle"

# A signal ends a wait that has begun. If a signal comes just before the wait, or to another thread,
# the wait notices it after at most this time. A wait wakes up this often.
UNSEEN_S = 0.5
# How often a caller who watches looks: a bar that moves less often seems to stand.
LOOK_S = 0.2


class _Worker:
    """A thread that makes calls for the main thread. To start a thread takes longer than most
    calls, so it is kept for the next one.

    It ends when nothing refers to this object any more. So no thread is lost if Ctrl-C comes before
    it has its call.
    """

    def __init__(self) -> None:
        """Raises RuntimeError if no thread can be made."""
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        weakref.finalize(self, self._calls.put, None).atexit = False
        # A daemon thread: a wait whose result nobody needs does not keep the process alive.
        threading.Thread(target=_run, args=(self._calls,), name=IDLE, daemon=True).start()

    def make(self, call: Callable[[], T], look: Callable[[], object] | None) -> _Answer[T]:
        answer: queue.SimpleQueue[_Answer[T]] = queue.SimpleQueue()
        self._calls.put((self, call, answer.put))
        while True:
            with contextlib.suppress(queue.Empty):
                return answer.get(timeout=UNSEEN_S if look is None else LOOK_S)
            if look is not None:
                look()


_Answer = tuple[T, None] | tuple[None, BaseException]
_Call = tuple[_Worker, Callable[[], Any], Callable[[Any], None]]


def _run(calls: queue.SimpleQueue[_Call | None]) -> None:
    thread = threading.current_thread()
    while (given := calls.get()) is not None:
        thread.name = IN_CALL
        worker, call, answer = given
        try:
            said: Any = (call(), None)
        except BaseException as error:
            said = (None, _as_of_caller(error))
        thread.name = IDLE
        if not _idle:
            _idle.append(worker)
        answer(said)
        del given, worker, call, answer, said


_idle: list[_Worker] = []  # usually one; there are more if calls were interrupted and went on
os.register_at_fork(after_in_child=_idle.clear)


def wait_for(call: Callable[[], T], look: Callable[[], object] | None = None) -> T:
    """Makes `call()`, and handles signals while it waits. If a signal handler raises, the call goes
    on by itself and its result is dropped. Every call that gpuwmd answers can wait: for a restart,
    for 30 seconds, or for as long as gpuwmd hangs.

    look: is called in this thread, every LOOK_S while the call waits. If it raises, the call goes
    on by itself too."""
    # Only the main thread handles signals, and no other thread runs while Python ends.
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main or look) or sys.is_finalizing():
        return call()
    try:
        worker = _idle.pop() if _idle else _Worker()
    except (RuntimeError, IndexError):  # a signal handler took the last idle worker
        return call()
    result, error = worker.make(call, look)
    del worker  # the traceback would keep the worker alive
    if error is not None:
        try:
            raise error
        finally:
            del error
    return result  # type: ignore[return-value]


def _as_of_caller(error: BaseException) -> BaseException:
    """Removes this thread's frames from the traceback, since the caller never called them. When the
    error is raised again, the caller's frames are added. An error that is not a gpuwm.Error is a
    fault of this package, so it keeps the frames of the call."""
    frames = error.__traceback__
    if isinstance(error, errors.Error):
        frames = None
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return error.with_traceback(frames)


async def awaited(call: Callable[[], T]) -> T:
    """Makes `call()` for asyncio. If it is cancelled, the call goes on by itself and its result is
    dropped."""
    import asyncio

    return await asyncio.wrap_future(begun(call))


def begun(call: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Makes `call()` on a thread of its own."""
    import concurrent.futures

    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_fulfil, args=(future, call), name=IN_CALL, daemon=True).start()
    return future


def _fulfil(future: concurrent.futures.Future[T], call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(_as_of_caller(error))
    else:
        future.set_result(result)
