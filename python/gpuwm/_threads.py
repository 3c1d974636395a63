"""Calls that wait, on another thread: Ctrl-C and asyncio get their turn meanwhile."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import errors

if TYPE_CHECKING:
    import concurrent.futures

T = TypeVar("T")

# What the threads are called, while one is in a call and while it waits for the next.
IN_CALL, IDLE = "gpuwm wait", "gpuwm idle"

# A signal ends a wait that has begun. One that comes right before the wait, or to another thread,
# is seen after at most this time. A wait wakes up as often.
UNSEEN_S = 0.5


class _Worker:
    """A thread that makes calls for the main thread: to begin one takes longer than most calls.

    It ends when nothing refers to this any more, so that none is lost to a Ctrl-C that comes
    before it has its call."""

    def __init__(self) -> None:
        """RuntimeError: there can be no more threads."""
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        weakref.finalize(self, self._calls.put, None).atexit = False
        # A daemon: a wait that nobody is interested in any more does not keep the process.
        threading.Thread(target=_run, args=(self._calls,), name=IDLE, daemon=True).start()

    def make(self, call: Callable[[], T]) -> _Answer[T]:
        answer: queue.SimpleQueue[_Answer[T]] = queue.SimpleQueue()
        self._calls.put((self, call, answer.put))
        while True:
            with contextlib.suppress(queue.Empty):
                return answer.get(timeout=UNSEEN_S)


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


_idle: list[_Worker] = []  # one; more were needed while calls were left to themselves
os.register_at_fork(after_in_child=_idle.clear)


def wait_for(call: Callable[[], T]) -> T:
    """`call()`, but a signal is handled while it waits. When its handler raises, the call goes on
    by itself and its result is let go. Every call that gpuwmd answers waits: for its restart, 30
    seconds, or for as long as it hangs."""
    # Signals are handled by the main thread only; and other threads stand still as Python ends.
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return call()
    try:
        worker = _idle.pop() if _idle else _Worker()
    except (RuntimeError, IndexError):  # a signal's handler took it
        return call()
    result, error = worker.make(call)
    del worker  # which would live as long as the traceback
    if error is not None:
        try:
            raise error
        finally:
            del error
    return result  # type: ignore[return-value]


def _as_of_caller(error: BaseException) -> BaseException:
    """Takes this thread's frames out of the traceback, since the caller never called them; raising
    the error in the caller's thread adds the caller's frames. An error that is no gpuwm.Error is a
    fault of this package, so it keeps the frames of the call."""
    frames = error.__traceback__
    if isinstance(error, errors.Error):
        frames = None
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return error.with_traceback(frames)


async def awaited(call: Callable[[], T]) -> T:
    """`call()`, awaited. Cancelled, the call goes on by itself and its result is let go."""
    import asyncio
    import concurrent.futures

    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_fulfil, args=(future, call), name=IN_CALL, daemon=True).start()
    return await asyncio.wrap_future(future)


def _fulfil(future: concurrent.futures.Future[T], call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(_as_of_caller(error))
    else:
        future.set_result(result)
