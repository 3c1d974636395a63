"""gpuwm's builder beside the package shared-tensor, in one run, each in processes of its own.

    beside_shared_tensor.py [--device cuda:0|host] [--small] [--parts NAME,...] [--examples FOLDER]

With --device host it is gpuwm's half alone, since shared-tensor has nothing for the CPU. Its
examples are in no package: --examples names a checkout of its repository. $GPUWM_BUILD/bin has
gpuwmd and gpuwm-keeper."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import beside_examples
import beside_sides
import common
import gpuwm
from beside_sides import VALUE, builds
from common import Worker, check, row

HOLDERS = 8  # client processes at once
RACERS = 16
RATE_S = 3.0
SETTLE_S = 5.0  # until what the dead held must be back
SUCCESSOR_S = 20.0
PARTS = ("times", "killed", "waiter", "producer", "race", "race-killed", "examples")


class Said(dict[str, Any]):
    """What a half found, by the row's name."""


# ---- the halves ---------------------------------------------------------------------------------


class Half:
    """Servers of one side, and its clients. references: how many its server counts. objects: what
    its server still has, and the bytes if it tells them."""

    name: str
    role: str

    def __init__(self, folder: pathlib.Path, device: str) -> None:
        self.folder, self.device = folder / self.name, device
        self.folder.mkdir()
        self.start()

    def start(self) -> None:
        raise NotImplementedError

    def kill_server(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def references(self, objects: set[str]) -> int:
        raise NotImplementedError

    def objects(self) -> str:
        raise NotImplementedError

    def forget(self, key: str, mib: int) -> None:
        """Invalidates it: the next call builds."""
        raise NotImplementedError

    @contextlib.contextmanager
    def clients(self, count: int, role: str | None = None) -> Iterator[list[Worker]]:
        words = (role or self.role, str(self.folder), self.device)
        with common.workers(count, *words) as started:
            for each in started:
                told = each.told()
                assert told == {"started": True}, told
            yield started

    def hold(self, key: str) -> pathlib.Path:
        """Builds of this key wait until this file is gone."""
        path = self.folder / f"hold-{key}"
        path.touch()
        return path

    def begun(self, key: str) -> list[int]:
        return [pid for pid, _ in builds(self.folder, key)]


class Ours(Half):
    name, role = "gpuwm", "gpuwm"

    def start(self) -> None:
        bin_ = f"{os.environ['GPUWM_BUILD']}/bin"
        path = self.folder / "gpuwm.sock"
        os.environ["GPUWM_SOCKET"] = str(path)
        with open(self.folder / "log", "wb") as log:
            self.keeper = subprocess.Popen(
                [
                    *(f"{bin_}/gpuwm-keeper", "--restart-delay", "0", "--"),
                    *(f"{bin_}/gpuwmd", "--socket", str(path), "--root", str(self.folder)),
                    *("--admin-socket", str(self.folder / "admin.sock")),
                ],
                stderr=log,
            )
        common.eventually(lambda: gpuwm.connect(admin=True, wait=30).status()["standby"], 60)

    def kill_server(self) -> None:
        os.kill(gpuwm.connect().status()["pid"], signal.SIGKILL)

    def stop(self) -> None:
        self.keeper.terminate()
        self.keeper.wait()

    def references(self, objects: set[str]) -> int:
        found: int = common.admin().status()["leases"]
        return found

    def objects(self) -> str:
        status = common.admin().status()
        return f"{status['versions']}: {status['bytes'] >> 20} MiB"

    def forget(self, key: str, mib: int) -> None:
        admin = common.admin()
        for version in common.versions(admin, "beside"):
            if version["state"] == "ready":
                common.retire(f"beside@{version['tag']}")


class Theirs(Half):
    name, role = "shared-tensor", "recommended"

    def start(self) -> None:
        self.server = Worker("server", str(self.folder), self.device)
        assert common.eventually(self.answers, common.WORKER_S), "its server starts"
        self.client = beside_sides.client(self.folder)

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as found:
            return found.connect_ex(f"{beside_sides.base_path(self.folder)}-0.sock") == 0

    def kill_server(self) -> None:
        self.server.kill()

    def stop(self) -> None:
        self.server.kill()

    def references(self, objects: set[str]) -> int:
        infos = [self.client.get_object_info(each) for each in objects]
        return sum(info["refcount"] for info in infos if info)

    def objects(self) -> str:
        return str(self.client.get_server_info()["stats"]["objects"])

    def forget(self, key: str, mib: int) -> None:
        if self.answers():  # its client would try for a minute
            self.client.invalidate_call_cache(self.role, key=key, mib=mib)


# ---- what is asked of clients -------------------------------------------------------------------


def ask(worker: Worker, *words: object) -> dict[str, Any]:
    worker.say(" ".join(map(str, words)))
    return worker.told()


def ask_all(workers: Sequence[Worker], *words: object) -> list[dict[str, Any]]:
    """At once."""
    for worker in workers:
        worker.say(" ".join(map(str, words)))
    return [worker.told() for worker in workers]


def call(worker: Worker, key: str, mib: int) -> dict[str, Any]:
    told = ask(worker, "call", key, mib)
    assert told.get("value") == VALUE, told
    return told


def ms(told: dict[str, Any]) -> float:
    return 1e3 * float(told["seconds"])


# ---- times --------------------------------------------------------------------------------------


def times(half: Half, small: bool) -> Said:
    said = Said()
    seconds = 0.5 if small else RATE_S
    with half.clients(HOLDERS) as clients:
        for label, mib in (("small", 0), ("64 MiB", 64) if small else ("1 GiB", 1024)):
            said |= times_of(half, clients, label, mib, seconds)
    if isinstance(half, Theirs):
        with half.clients(1, "direct") as (one,):
            call(one, "direct", 0)
            told = ask(one, "rate", "direct", 0, seconds)
        said['small: the same with execution="direct", 1 process'] = told.get("a_second", told)
    return said


def times_of(half: Half, clients: list[Worker], label: str, mib: int, seconds: float) -> Said:
    said, key = Said(), f"times{mib}"
    before = common.settled_mib(half.device)
    first, second = clients[:2]
    said[f"{label}: first call, which builds, ms"] = ms(call(first, key, mib))
    said[f"{label}: of it the function, ms"] = 1e3 * builds(half.folder, key, "end")[0][1]
    said[f"{label}: call of another process, ms"] = ms(call(second, key, mib))
    said[f"{label}: that process again, ms"] = ms(call(second, key, mib))
    used = common.settled_mib(half.device)
    said[f"{label}: release, ms"] = ms(ask(second, "release"))
    ask(second, "release")
    for count in (1, len(clients)):
        told = ask_all(clients[:count], "rate", key, mib, seconds)
        rates = [each.get("a_second", 0.0) for each in told]
        said[f"{label}: calls and releases a second, {count} processes"] = sum(rates)
        if errors := [each["error"] for each in told if "error" in each]:
            said[f"{label}: errors, {count} processes"] = f"{len(errors)}: {errors[0]}"
    said[f"{label}: the last release, ms"] = ms(ask(first, "release"))
    said[f"{label}: GPU MiB more than before: held, released"] = (
        f"{used - before}, {common.settled_mib(half.device) - before}"
    )
    half.forget(key, mib)
    said[f"{label}: and invalidated"] = common.settled_mib(half.device) - before
    check(len(half.begun(key)) == 1, f"{half.name}: {key} was built once")
    return said


# ---- what stays ---------------------------------------------------------------------------------


def killed(half: Half, small: bool) -> Said:
    """Processes die by SIGKILL while they have a handle."""
    said, key, mib = Said(), "killed", 64 if small else 1024
    before = common.settled_mib(half.device)
    with half.clients(HOLDERS) as clients:
        told = [call(each, key, mib) for each in clients]
        objects = {each["object"] for each in told if "object" in each}
        said["references while they live"] = half.references(objects)
        for each in clients:
            each.kill()
        common.eventually(lambda: half.references(objects) == 0, SETTLE_S)
    said[f"references {SETTLE_S:.0f} s after all {HOLDERS} were killed"] = half.references(objects)
    half.forget(key, mib)
    common.eventually(lambda: common.device_mib(half.device) <= before, SETTLE_S)
    said["what the server has then, invalidated"] = half.objects()
    said["GPU MiB more than before"] = common.settled_mib(half.device) - before
    return said


def waiter(half: Half, small: bool) -> Said:
    """One builds, another waits for it and is killed before it has an answer."""
    said, key, mib = Said(), "waiter", 64 if small else 1024
    before = common.settled_mib(half.device)
    with half.clients(2) as (builder, waits):
        held = half.hold(key)
        builder.say(f"call {key} {mib}")
        assert common.eventually(lambda: half.begun(key), 30), "it builds"
        waits.say(f"call {key} {mib}")
        time.sleep(1)  # nothing tells that a server of theirs has the request
        waits.kill()
        held.unlink()
        told = builder.told()
        objects = {told["object"]} if "object" in told else set()
        said["references when one of two has its answer"] = half.references(objects)
        ask(builder, "release")
        common.eventually(lambda: half.references(objects) == 0, SETTLE_S)
        said["references when it has released it"] = half.references(objects)
    half.forget(key, mib)
    common.eventually(lambda: common.device_mib(half.device) <= before, SETTLE_S)
    said["what the server has then, invalidated"] = half.objects()
    said["GPU MiB more than before"] = common.settled_mib(half.device) - before
    return said


# ---- the producer dies --------------------------------------------------------------------------


def producer(half: Half, small: bool) -> Said:
    """The server and the process that built die by SIGKILL, while another has a handle."""
    said, key, mib = Said(), "producer", 64 if small else 1024
    with half.clients(3) as (builder, holder, comes):
        call(builder, key, mib)
        call(holder, key, mib)
        builder.kill()
        half.kill_server()
        said["the holder reads"] = outcome(ask(holder, "read"))
        begin = time.perf_counter()
        told = ask(comes, "call", key, mib)
        said["a new call, server not started by hand"] = outcome(told)
        said["  after, s"] = time.perf_counter() - begin
        said["  builds in all"] = len(half.begun(key))
        if "error" in told:
            half.start()
            said["a new call, server started again"] = outcome(ask(comes, "call", key, mib))
            said["  builds in all, then"] = len(half.begun(key))
        said["the holder reads at last"] = outcome(ask(holder, "read"))
    half.forget(key, mib)
    return said


def outcome(told: dict[str, Any]) -> str:
    if "error" in told:
        return str(told["error"])
    return "the right value" if told["value"] == VALUE else f"WRONG: {told['value']}"


# ---- races --------------------------------------------------------------------------------------


def race(half: Half, small: bool, kill: bool = False) -> Said:
    said, key, mib = Said(), f"race{kill}", 64 if small else 1024
    count = 4 if small else RACERS
    with half.clients(count) as clients:
        held = half.hold(key)
        for each in clients:
            each.say(f"call {key} {mib}")
        assert common.eventually(lambda: half.begun(key), 30), "somebody builds"
        time.sleep(1)  # the others have come
        if kill:
            os.kill(half.begun(key)[0], signal.SIGKILL)
            successor = common.eventually(lambda: len(half.begun(key)) > 1, SUCCESSOR_S)
            said["a successor builds"] = "yes" if successor else "no"
        held.unlink()
        begin = time.perf_counter()
        told = [each.told() for each in clients]
        said["until all have an answer, ms"] = 1e3 * (time.perf_counter() - begin)
    said["builds"] = len(half.begun(key))
    said[f"of {count} that have it"] = sum(each.get("value") == VALUE for each in told)
    if errors := [each["error"] for each in told if "value" not in each]:
        said["  the first error"] = errors[0]
    half.forget(key, mib)
    return said


def race_killed(half: Half, small: bool) -> Said:
    """The one that builds is killed midway."""
    return race(half, small, kill=True)


# ---- the tables ---------------------------------------------------------------------------------

SCENARIOS = {
    "times": (times, "times"),
    "killed": (killed, f"{HOLDERS} processes killed while they hold it"),
    "waiter": (waiter, "one of two is killed while it waits for the other's build"),
    "producer": (producer, "the server and the process that built are killed"),
    "race": (race, "processes that come at once for one key"),
    "race-killed": (race_killed, "the same, and the builder is killed midway"),
}


def table(title: str, halves: Sequence[type[Half]], founds: Sequence[Said]) -> None:
    print(title, flush=True)
    row("", *(half.name for half in halves))
    names = dict.fromkeys(name for found in founds for name in found)
    for name in names:
        cells = [found.get(name, "-") for found in founds]
        row(name, *cells)


def run(name: str, halves: Sequence[type[Half]], options: argparse.Namespace) -> None:
    scenario, title = SCENARIOS[name]
    founds = []
    for kind in halves:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            try:
                half = kind(pathlib.Path(folder), options.device)
                stack.callback(half.stop)
                founds.append(scenario(half, options.small))
            except Exception as error:
                check(False, f"{kind.name}: {type(error).__name__}: {error}")
                founds.append(Said())
    table(title, halves, founds)
    verdicts(name, founds[0])


def verdicts(name: str, ours: Said) -> None:
    """What gpuwm promises."""
    if name in ("killed", "waiter"):
        last = [count for what, count in ours.items() if what.startswith("references")][-1:]
        check(last == [0], "no lease is left")
        check(ours.get("what the server has then, invalidated") == "0: 0 MiB", "nothing is left")
    if name == "producer":
        read = [ours.get("the holder reads"), ours.get("the holder reads at last")]
        check(read == ["the right value"] * 2, "the holder reads right values")
        check(ours.get("  builds in all") == 1, "it is built once")
    if name.startswith("race"):
        dead = int(name == "race-killed")
        has = [count for what, count in ours.items() if what.startswith("of ")]
        of = [int(what.split()[1]) for what in ours if what.startswith("of ")]
        check(has == [count - dead for count in of] != [], "all that live have it")
        check(ours.get("builds") == 1 + dead, f"{1 + dead} built it")


def main(options: argparse.Namespace) -> None:
    halves: list[type[Half]] = [Ours] if options.device == "host" else [Ours, Theirs]
    print(f"gpuwm's builder beside shared-tensor, {options.device}", flush=True)
    if not hasattr(gpuwm, "builder"):
        print("  gpuwm has no builder: gpuwm.obtain stands in", flush=True)
    os.environ["SHARED_TENSOR_LOG_LEVEL"] = "CRITICAL"
    for name in options.parts.split(","):
        begin = time.monotonic()
        if name != "examples":
            run(name, halves, options)
        elif options.examples and options.device != "host":
            beside_examples.run(pathlib.Path(options.examples))
        print(f"  -- {name}: {time.monotonic() - begin:.0f} s", flush=True)


def more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--examples", help="a checkout of shared-tensor's repository")


if __name__ == "__main__":
    common.run(main, beside_sides.worker, more)
