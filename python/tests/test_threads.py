"""The thread that calls of the main thread are made on."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref

import numpy as np
import pytest
from conftest import Daemon, eventually, in_calls, interrupted, run_python

import gpuwm
from gpuwm._c import threads as _threads


def idle() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpuwm idle"]


def test_one_thread_makes_all_calls() -> None:
    threads = {_threads.wait_for(threading.current_thread) for _ in range(3)}
    assert threads == set(idle())
    assert len(threads) == 1


def test_calls_of_other_threads_stay_there() -> None:
    seen: list[threading.Thread] = []
    thread = threading.Thread(
        target=lambda: seen.append(_threads.wait_for(threading.current_thread))
    )
    thread.start()
    thread.join()
    assert seen == [thread]


class Thing(Exception):
    pass


def given_and_raised() -> weakref.ref[Thing]:
    thing = Thing()

    def fails() -> None:
        raise thing

    assert _threads.wait_for(lambda: thing) is thing
    with pytest.raises(Thing) as raised:
        _threads.wait_for(fails)
    assert raised.value is thing
    return weakref.ref(thing)


def test_what_a_call_raises_and_returns_is_let_go() -> None:
    thing = given_and_raised()

    def is_gone() -> bool:
        gc.collect()  # the traceback's frames
        return thing() is None

    eventually(is_gone)


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]


@pytest.mark.usefixtures("daemon")
def test_an_error_is_raised_by_the_call_and_not_by_a_thread() -> None:
    client = gpuwm.connect()
    with pytest.raises(gpuwm.NotFound) as raised:
        gpuwm.attach("nothing@v1")
    assert frames(raised.value) == ["attach", "take", "waited", "wait_for"]
    with pytest.raises(gpuwm.Refused) as refused:
        client.clients()
    assert frames(refused.value) == ["clients", "_query", "_call", "wait_for"]

    async def awaits() -> None:
        await gpuwm.attach_async("nothing@v1")

    with pytest.raises(gpuwm.NotFound) as awaited:
        asyncio.run(awaits())
    assert frames(awaited.value)[-3:] == ["awaits", "attach_async", "awaited"]


def test_a_fault_of_the_package_shows_where_it_is() -> None:
    def fails() -> None:
        raise Thing

    with pytest.raises(Thing) as raised:
        _threads.wait_for(fails)
    assert frames(raised.value) == ["wait_for", "fails"]


def test_a_call_that_was_left_goes_on_beside_others() -> None:
    go_on = threading.Event()
    ended: list[bool] = []
    others = set(in_calls())
    interrupted(lambda: _threads.wait_for(lambda: ended.append(go_on.wait(60))), go_on.set)
    (left,) = set(in_calls()) - others
    other = _threads.wait_for(threading.current_thread)
    assert other is not left
    assert not ended
    go_on.set()
    eventually(lambda: left not in in_calls())
    assert ended == [True]
    eventually(lambda: idle() == [other])


def test_a_signal_that_does_not_end_the_wait_is_seen() -> None:
    """As one that comes right before the wait begins: another thread gets it."""
    go_on = threading.Event()
    ended: list[bool] = []

    def call() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ended.append(go_on.wait(60))

    with pytest.raises(KeyboardInterrupt):
        _threads.wait_for(call)
    assert not ended
    go_on.set()
    eventually(lambda: len(idle()) == 1)


def test_a_child_has_a_thread_of_its_own() -> None:
    _threads.wait_for(lambda: None)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(7 if _threads.wait_for(os.getpid) == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_call_that_never_began_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Ctrl-C comes before the thread has its call."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    _threads.wait_for(lambda: None)
    monkeypatch.setattr(_threads._Worker, "make", stopped)
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            _threads.wait_for(lambda: None)
    monkeypatch.undo()
    eventually(lambda: not [t for t in threading.enumerate() if t.name == _threads.IDLE])
    _threads.wait_for(lambda: None)
    assert len(idle()) == 1


def test_calls_as_the_interpreter_ends() -> None:
    code = """
from gpuwm._c import threads
class AtTheEnd:
    def __del__(self, wait_for=threads.wait_for):
        print(wait_for(lambda: 7), flush=True)
threads.wait_for(lambda: None)
kept = AtTheEnd()
"""
    assert run_python(code).strip() == "7"


HANDLER = """
import os, signal, sys, threading, time, gpuwm
def until_in_calls(count):
    deadline = time.monotonic() + 30
    while sum(thread.name == "gpuwm wait" for thread in threading.enumerate()) < count:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.005)
def press():
    until_in_calls(1)
    os.kill(os.getpid(), signal.SIGUSR1)
    until_in_calls(2)
    print("both wait", flush=True)
attached = []
signal.signal(signal.SIGUSR1, lambda *_: attached.append(gpuwm.attach(sys.argv[1])))
threading.Thread(target=press).start()
attached.append(gpuwm.attach(sys.argv[1]))
print(*attached)
"""


def test_a_handler_attaches_while_the_main_thread_connects(daemon: Daemon) -> None:
    """Both with the client that the process shares."""
    name = daemon.load("handled@v1", {"a": np.ones(4, np.float32)})
    daemon.signal(signal.SIGSTOP)
    try:
        command = [sys.executable, "-c", HANDLER, name]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "both wait\n"
    finally:
        daemon.signal(signal.SIGCONT)
    assert child.communicate(timeout=30)[0].count("handled@v1") == 2
