"""What tests/operators/follow/run plays, under load from its beginning to its end."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from load import Load
from machine import Machine, Worker, by_hand, eventually, leave, of_unit

SWAPS = int(os.environ.get("GPUWM_FOLLOW_SWAPS", "20"))
VERSIONS = 5  # so that an answer of two versions before is seen
WORKERS = 3


def swap(machine: Machine, load: Load, tag: str) -> None:
    """Before the swap itself: a worker may answer with the new version before the call returns."""
    load.swapped(f"m@{tag}")
    machine.admin.swap("m", tag)


def settle(machine: Machine, load: Load, tag: str, workers: list[Worker]) -> None:
    """All workers have the version, and requests get it."""
    addresses = {worker.address for worker in workers}
    eventually(
        f"all workers serve {tag}",
        lambda: all(machine.served().get(address) == f"m@{tag}" for address in addresses),
    )
    eventually(f"HAProxy has {addresses}", lambda: machine.in_service() == addresses)
    now = time.monotonic()
    eventually(f"the hook has {addresses}", lambda: machine.listed() == addresses)
    eventually(f"requests get {tag}", lambda: load.answered(f"m@{tag}", now))


class Scenes:
    def __init__(self, machine: Machine, load: Load, workers: list[Worker]) -> None:
        self.machine, self.load, self.workers = machine, load, workers
        self.tag = 0

    def next_tag(self) -> str:
        self.tag = (self.tag + 1) % VERSIONS
        return f"v{self.tag}"

    def swap_once(self) -> None:
        tag, began = self.next_tag(), time.monotonic()
        swap(self.machine, self.load, tag)
        eventually(f"a request gets {tag}", lambda: self.load.answered(f"m@{tag}", began))

    def swaps(self) -> None:
        """Each comes when the one before has reached a request, and some more were answered."""
        for _ in range(SWAPS):
            self.swap_once()
            before = len(self.load.answers)
            eventually("more answers", lambda: len(self.load.answers) >= before + 10)
        settle(self.machine, self.load, f"v{self.tag}", self.workers)

    def worker_killed(self) -> None:
        """A request is at the worker, which has not answered, when it dies."""
        victim = self.workers.pop(0)
        victim.process.send_signal(signal.SIGSTOP)
        eventually(
            "a request waits for the worker", lambda: self.machine.requests_at(victim.address)
        )
        victim.kill()
        self.workers.append(self.machine.start_worker())
        settle(self.machine, self.load, f"v{self.tag}", self.workers)

    def gpuwmd_killed(self) -> None:
        killed = self.machine.admin.status()["pid"]
        os.kill(killed, signal.SIGKILL)
        eventually("the next gpuwmd is there", lambda: self.machine.admin.status()["pid"] != killed)
        self.swap_once()
        settle(self.machine, self.load, f"v{self.tag}", self.workers)

    def haproxy_reloaded(self) -> None:
        self.machine.reload_haproxy()
        self.swap_once()
        settle(self.machine, self.load, f"v{self.tag}", self.workers)

    def follow_killed(self) -> None:
        """Versions change and a worker dies while there is none."""
        self.machine.follow.kill()
        self.machine.follow.wait()
        self.swap_once()
        self.workers.pop(0).kill()
        self.machine.start_follow()
        self.workers.append(self.machine.start_worker())
        settle(self.machine, self.load, f"v{self.tag}", self.workers)

    def start_two(self) -> list[Worker]:
        workers = [self.machine.start_worker("--stay") for _ in range(2)]
        return [worker.wait_in_service() for worker in workers]

    def workers_replaced(self) -> None:
        """Workers keep their version: old ones go on until a new one is there, drain and leave."""
        old = self.start_two()
        leave(self.workers)
        settle(self.machine, self.load, f"v{self.tag}", old)
        swap(self.machine, self.load, self.next_tag())
        eventually(
            "gpuwm-follow says that nobody serves it",
            lambda: f"no worker serves m@v{self.tag} yet" in self.machine.log("follow"),
        )
        assert self.machine.in_service() == {worker.address for worker in old}
        self.workers = self.start_two()
        eventually(
            "the old ones drain",
            lambda: self.machine.in_service() == {w.address for w in self.workers},
        )
        leave(old)
        settle(self.machine, self.load, f"v{self.tag}", self.workers)


def haproxy_forgets(machine: Machine, workers: list[Worker]) -> None:
    """A HAProxy that begins with nothing is told all. Without load: nobody answers meanwhile."""
    lost = "HAProxy has lost the"
    assert lost not in machine.log("follow"), "HAProxy was reloaded with its servers"
    assert machine.haproxy
    machine.haproxy.kill()
    machine.haproxy.wait()
    machine.forget_haproxy_state()
    machine.start_haproxy()
    eventually(
        "HAProxy has all", lambda: machine.in_service() == {worker.address for worker in workers}
    )
    eventually("gpuwm-follow names the cause", lambda: lost in machine.log("follow"))


SCENES = (
    Scenes.swaps,
    Scenes.worker_killed,
    Scenes.gpuwmd_killed,
    Scenes.haproxy_reloaded,
    Scenes.follow_killed,
    Scenes.workers_replaced,
)


def report(load: Load, name: str, since: float, answered: int) -> int:
    """One line; how many requests went wrong so far."""
    failed, wrong = load.judge()
    swaps = len(load.current) - 1
    print(
        f"{name}: {swaps} swaps so far, {time.monotonic() - since:.1f} s,"
        f" {len(load.answers) - answered} requests,"
        f" {len(failed)} failed, {len(wrong)} of a wrong version so far",
        flush=True,
    )
    for answer in (failed + wrong)[:5]:
        print(f"FAIL {answer}")
    return len(failed) + len(wrong)


def play(machine: Machine) -> int:
    machine.start_follow()  # before those that it talks to
    machine.start_hook()
    machine.start_gpuwmd()
    for i in range(VERSIONS):
        machine.load(f"v{i}", i)
    machine.start_haproxy()
    workers = [machine.start_worker() for _ in range(WORKERS)]
    for worker in workers:
        worker.wait_in_service()
    bad = 0
    with Load(machine.port, "m@v0") as load:
        scenes = Scenes(machine, load, workers)
        for scene in SCENES:
            since, answered = time.monotonic(), len(load.answers)
            scene(scenes)
            bad = report(load, scene.__name__, since, answered)
            if bad:
                return bad
    haproxy_forgets(machine, scenes.workers)
    return bad


def main() -> int:
    assert sorted(by_hand()) == sorted(of_unit()), "the page's command and the unit differ"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuwm-follow-"))
    (folder / "models").mkdir()
    machine = Machine(folder)
    bad = 1
    try:
        bad = play(machine)
    finally:
        machine.end()
        if bad or sys.exc_info()[0]:
            for log in sorted(folder.glob("*.log")):
                print(f"-- {log.name}", log.read_text(errors="replace")[-3000:], sep="\n")
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
