"""Calls that wait, on a thread of their own: Ctrl-C and asyncio get their turn meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def _start(call: Callable[[], T]) -> concurrent.futures.Future[T]:
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    # A daemon: a wait that nobody is interested in any more does not keep the process.
    threading.Thread(target=run, name="gpuwm wait", daemon=True).start()
    return future


def wait_for(call: Callable[[], T]) -> T:
    """`call()`, but a signal is handled while it waits. When its handler raises, the call goes on
    by itself and its result is let go. Every call that gpuwmd answers waits: for its restart, 30
    seconds, or for as long as it hangs."""
    if threading.current_thread() is not threading.main_thread():
        return call()  # signals are handled by the main thread only
    try:
        future = _start(call)
    except RuntimeError:  # the interpreter ends, or there can be no more threads
        return call()
    return future.result()


async def awaited(call: Callable[[], T]) -> T:
    """`call()`, awaited. Cancelled, the call goes on by itself and its result is let go."""
    return await asyncio.wrap_future(_start(call))
