"""Events and asyncio: nobody polls, nobody blocks the loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import pytest
from conftest import (
    Daemon,
    Tensors,
    eventually,
    in_calls,
    interrupted,
    until,
    write_safetensors,
)

import gpuwm
from gpuwm._c import lib

ONES = np.ones(16, np.float32)
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it, and sees to it that it ends."""
    return asyncio.run(asyncio.wait_for(coroutine, 60))


@pytest.fixture
def version(checkpoint: Callable[[Tensors], str]) -> str:
    return checkpoint({"a": ONES})


def checkpoint_folder(daemon: Daemon, name: str) -> str:
    folder = daemon.models / name
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"a": ONES})
    return str(folder)


def test_a_loop_sees_what_happens(daemon: Daemon, version: str) -> None:
    model = version.partition("@")[0]
    with gpuwm.events() as events:
        assert events.next(wait=0) is None
        assert events.next(wait=0.01) is None
        daemon.admin.swap(model, "v1", alias="prod")
        for event in events:
            if event.kind == "swapped":
                break
        assert (event.model, event.alias, event.version) == (model, "prod", event.data["version"])
        before = event.seq
    daemon.admin.swap(model, None, alias="prod")
    again = gpuwm.events(after=before - 1).next(wait=10)
    assert again is not None
    assert again.seq == before
    with pytest.raises(gpuwm.Closed):
        events.next()


def test_a_coroutine_sees_what_happens(daemon: Daemon, version: str) -> None:
    model = version.partition("@")[0]

    async def swapped() -> list[str]:
        events = gpuwm.events().open()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                if turns == 6:  # the loop turns while events are waited for
                    swap("one")
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        seen: list[str] = []
        async for event in events:
            if event.kind == "swapped" and event.model == model:
                seen.append(event.alias)
                if len(seen) == 2:
                    break
                swap("two")
        counting.cancel()
        return seen

    def swap(alias: str) -> None:
        daemon.admin.swap(model, "v1", alias=alias)

    assert run(swapped()) == ["one", "two"]


def test_events_that_came_with_the_subscription_are_told(daemon: Daemon, version: str) -> None:
    model = version.partition("@")[0]
    with gpuwm.events() as events:
        daemon.admin.swap(model, "v1", alias="early")
        event = eventually(lambda: events.next(wait=10))

    async def first() -> int:
        async for early in gpuwm.events(after=event.seq - 1):
            return early.seq
        return 0

    assert run(first()) == event.seq


def test_close_ends_a_loop_of_another_thread(daemon: Daemon) -> None:
    events = gpuwm.events().open()
    sessions: int = daemon.admin.status()["sessions"]
    seen: list[gpuwm.Event] = []
    thread = threading.Thread(target=lambda: seen.extend(events), daemon=True)
    thread.start()
    subscription = events._subscription
    assert subscription is not None
    eventually(subscription._one_call.locked)  # it waits
    events.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "disconnected" not in [event.kind for event in seen]
    eventually(lambda: daemon.admin.status()["sessions"] < sessions)


def test_close_ends_a_loop_of_a_coroutine(daemon: Daemon) -> None:
    async def loop(events: gpuwm.Events) -> None:
        async for _ in events:
            pass

    async def closed() -> None:
        events = gpuwm.events().open()
        task = asyncio.create_task(loop(events))
        await asyncio.sleep(0)  # it waits
        await asyncio.sleep(0)
        events.close()
        await task

    run(closed())


def test_events_after_an_interrupted_wait(
    daemon: Daemon, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = version.partition("@")[0]
    library = lib.load()
    dispatch = library.gpuwm_events_dispatch
    inside: list[None] = []
    most = 0

    def counting(*arguments: Any) -> Any:
        nonlocal most
        inside.append(None)
        most = max(most, len(inside))
        try:
            return dispatch(*arguments)
        finally:
            inside.pop()

    monkeypatch.setattr(library, "gpuwm_events_dispatch", counting)
    events = gpuwm.events().open()
    interrupted(events.next, lambda: daemon.admin.swap(model, "v1"))
    assert events.next(wait=0.01) is None  # the call that was left has its turn
    daemon.admin.swap(model, "v1", alias="late")
    event = events.next(wait=30)
    assert event is not None
    assert event.alias == "late"
    assert most == 1  # the library is asked by one thread at a time


def test_a_job_is_awaited(daemon: Daemon) -> None:
    folder = checkpoint_folder(daemon, "awaited")

    async def load() -> bool:
        return await daemon.admin.load(folder, "awaited@v1", devices=daemon.device)

    assert run(load())

    async def fail() -> bool:
        return await daemon.admin.load(folder + "-none", "fails@v1", devices=daemon.device)

    with pytest.raises(gpuwm.NotFound):
        run(fail())


def test_a_version_is_awaited(
    daemon: Daemon, client: gpuwm.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint_folder(daemon, "coming")
    looks = mock.Mock(wraps=gpuwm._c.events._ready)
    monkeypatch.setattr(gpuwm._c.events, "_ready", looks)

    async def come() -> dict[str, Any]:
        waiting = asyncio.create_task(client.ready("coming@v1"))
        await until(lambda: looks.called)  # then it waits for events
        assert not waiting.done()
        daemon.admin.load(folder, "coming@v1", devices=daemon.device)
        return await waiting

    assert run(come())["state"] == "ready"
    assert run(client.ready("coming"))["tag"] == "v1"


def test_a_version_that_fails_says_why(daemon: Daemon, client: gpuwm.Client) -> None:
    folder = daemon.models / "bad"
    folder.mkdir()
    cut_off = (100).to_bytes(8, "little") + b'{"a":{"dtype"'
    (folder / "model.safetensors").write_bytes(cut_off)
    job = daemon.admin.load(folder, "bad@v1", devices=daemon.device)
    with pytest.raises(gpuwm.Damaged):
        job.wait()
    if any(row["tag"] == "v1" for row in client.list("bad")["versions"]):
        with pytest.raises(gpuwm.Damaged, match="bad@v1 failed"):
            run(client.ready("bad@v1"))


def test_attaching_is_awaited(daemon: Daemon, version: str) -> None:
    async def attach() -> str:
        w = await gpuwm.attach_async(version)
        return str(w.version)

    assert run(attach()) == version


def test_a_cancelled_attach_gives_back_what_it_gets(daemon: Daemon) -> None:
    checkpoint_folder(daemon, "late")
    before = set(in_calls())

    async def cancel() -> None:
        attaching = asyncio.create_task(gpuwm.attach_async("late@v1", wait=60))
        await asyncio.to_thread(eventually, lambda: set(in_calls()) - before)
        attaching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attaching

    run(cancel())
    daemon.load_folder("late@v1", daemon.models / "late")
    eventually(lambda: not set(in_calls()) - before)
    eventually(lambda: daemon.leases("late@v1") == 0)


def test_events_go_on_over_a_restart(daemon: Daemon) -> None:
    """The last test here: its gpuwmd comes back with nothing."""

    async def follow() -> list[str]:
        events = gpuwm.events().open()
        asyncio.get_running_loop().call_later(0.05, restart)
        kinds: list[str] = []
        async for event in events:
            kinds.append(event.kind)
            if event.kind == "version_ready":
                break
        return kinds

    over = threading.Event()

    def again() -> None:
        daemon.start()
        # What is ready before the follower is back is not told to it.
        for number in itertools.count():
            daemon.load(f"anew@v{number}", {"a": ONES})
            if over.wait(0.1):  # gpuwmd ends with the thread that started it
                return

    starting = threading.Thread(target=again)

    def restart() -> None:
        daemon.kill()
        starting.start()

    kinds = run(follow())
    over.set()
    starting.join()
    assert kinds[0] == "disconnected"
    assert kinds[-1] == "version_ready"
