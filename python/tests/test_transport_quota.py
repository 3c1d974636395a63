"""Pools, queues, blocks and scratch memory that wait for a quota: gpuwmd has started anew, and
frees nothing yet."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually, running
from other_processes import peers

import gpuwm

ROOM = 4096
KEPT = "1 version of uid .* ms from now, which gives 2 descriptors in the store back"

Make = Callable[[float | None], Any]
CREATED: dict[str, Make] = {
    "pool": lambda wait: gpuwm.Pool(ROOM, name="kept", writers="many", owner="uid", wait=wait),
    "queue": lambda wait: gpuwm.Queue(2, name="kept", owner="uid", wait=wait),
    "blocks": lambda wait: gpuwm.Blocks.create("kept", blocks=1, block_bytes=256, wait=wait),
    "blocks, or opened": lambda wait: gpuwm.Blocks.open_or_create(
        "kept", blocks=1, block_bytes=256, wait=wait
    ),
    "scratch": lambda wait: gpuwm.Scratch.create("kept", bytes=ROOM, wait=wait),
}
OPENED: dict[str, Make] = {
    "pool": lambda wait: gpuwm.Pool.open("kept", wait=wait),
    "queue": lambda wait: gpuwm.Queue.open("kept", wait=wait),
    "blocks": lambda wait: gpuwm.Blocks.open("kept", wait=wait),
    "blocks, or opened": lambda wait: gpuwm.Blocks.open_or_create(
        "kept", blocks=1, block_bytes=256, wait=wait
    ),
    "scratch": lambda wait: gpuwm.Scratch.open("kept", wait=wait),
}
IN_PEER = {
    "pool": f"made = gpuwm.Pool({ROOM}, name='kept', writers='many', owner='uid')",
    "queue": "made = gpuwm.Queue(2, name='kept', owner='uid')",
    "blocks": "made = gpuwm.Blocks.create('kept', blocks=1, block_bytes=256)",
    "blocks, or opened": "made = gpuwm.Blocks.create('kept', blocks=1, block_bytes=256)",
    "scratch": f"made = gpuwm.Scratch.create('kept', bytes={ROOM})",
}


@contextlib.contextmanager
def limited(descriptors: int) -> Iterator[Daemon]:
    """A gpuwmd whose users may have so many descriptors, and whose grace time no test awaits."""
    limits = (f"limits.fds_per_uid={descriptors}", "limits.grace_ms=60000")
    flags = [flag for limit in limits for flag in ("--set", limit)]
    with running(*flags, keeper=True) as daemon:
        yield daemon


def leave_version(daemon: Daemon) -> None:
    """A version of this user is on its way to be freed: two descriptors."""
    gpuwm.publish({"a": np.ones(4, np.float32)}, "m@v1", bind=False)
    daemon.restart()
    daemon.admin.remove_alias("m", "current")
    daemon.admin.retire("m@v1")


def waits(daemon: Daemon, make: Make) -> None:
    """It is refused at once, and when its time is over, and else waits until the version is
    freed."""
    with ThreadPoolExecutor(1) as pool:
        for wait in (None, 0.1):
            with pytest.raises(gpuwm.Quota, match=KEPT):
                make(wait)
        made = pool.submit(make, 60)
        eventually(lambda: daemon.admin.status()["waiting"] == 1)
        daemon.admin.retire("m@v1", force=True)
        made.result().close()


@pytest.mark.parametrize("what", CREATED)
def test_what_is_created_waits_for_what_comes_back(what: str) -> None:
    with limited(4) as daemon:
        leave_version(daemon)
        waits(daemon, CREATED[what])


@pytest.mark.parametrize("what", OPENED)
def test_what_is_opened_waits_for_what_comes_back(what: str) -> None:
    with limited(5) as daemon, peers(1) as (other,):
        other.run(IN_PEER[what])
        leave_version(daemon)
        waits(daemon, OPENED[what])


def test_other_calls_go_on_meanwhile() -> None:
    with limited(4) as daemon, ThreadPoolExecutor(1) as pool:
        leave_version(daemon)
        made = pool.submit(CREATED["pool"], 60)
        eventually(lambda: daemon.admin.status()["waiting"] == 1)
        with pytest.raises(gpuwm.NotFound):
            gpuwm.attach("none@v1")
        daemon.admin.retire("m@v1", force=True)
        made.result().close()


def test_after_ctrl_c_what_comes_is_closed() -> None:
    with limited(4) as daemon:
        leave_version(daemon)

        def press() -> None:
            eventually(lambda: daemon.admin.status()["waiting"] == 1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        threading.Thread(target=press).start()
        with pytest.raises(KeyboardInterrupt):
            gpuwm.Pool(ROOM, wait=60)
        daemon.admin.retire("m@v1", force=True)
        eventually(lambda: daemon.admin.status()["waiting"] == 0)
        eventually(lambda: daemon.admin.status()["regions"] == 0)


@pytest.mark.parametrize("what", CREATED)
def test_a_wait_that_can_not_be_meant_is_refused(daemon: Daemon, what: str) -> None:
    with pytest.raises(gpuwm.Invalid, match="wait=-1"):
        CREATED[what](-1)
    with pytest.raises(TypeError, match="wait='1'"):
        CREATED[what]("1")  # type: ignore[arg-type]
