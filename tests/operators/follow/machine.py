"""gpuwmd under its keeper, HAProxy, gpuwm-follow and workers: real processes in one folder."""

from __future__ import annotations

import grp
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import gpuwm

ROOT = pathlib.Path(__file__).parents[3]
BUILD = pathlib.Path(os.environ["GPUWM_BUILD"])
WAIT_S = 60


def eventually(what: str, holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.01)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def blocks(page: str, number: int) -> str:
    """The commands of this block of the page. tests/operators/pages/run finds here that they run."""
    tool = ROOT / "tests/operators/pages/blocks"
    return subprocess.run([tool, ROOT / page, str(number)], check=True, capture_output=True, text=True).stdout


def by_hand() -> list[str]:
    """The words of the page's command."""
    return shlex.split(blocks("docs/how-to/routing.md", 1).replace("\\\n", ""))


def of_unit() -> list[str]:
    """The words of the unit with the page's environment file."""
    flags = re.search(r"^GPUWM_FOLLOW=(.*)", (ROOT / "docs/how-to/routing.md").read_text(), re.M)
    unit = re.search(r"^ExecStart=\S*/(gpuwm-follow .*)", (ROOT / "systemd/gpuwm-follow.service.in").read_text(), re.M)
    assert flags and unit
    return shlex.split(unit[1].replace("$GPUWM_FOLLOW", flags[1]))


class Machine:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.haproxy: subprocess.Popen[bytes] | None = None
        os.environ["GPUWM_SOCKET"] = str(folder / "gpuwm.sock")
        self._write_haproxy_cfg()

    def start(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    # ---- gpuwmd ----

    def start_gpuwmd(self) -> None:
        self.start(
            "gpuwmd",
            *(BUILD / "bin/gpuwm-keeper", "--restart-delay", 0, "--runtime-dir", self.folder, "--"),
            *(BUILD / "bin/gpuwmd", "--root", self.folder / "models"),
            *("--set", f"access.observe_group={grp.getgrgid(os.getgid()).gr_name}"),
            *("--socket", self.folder / "gpuwm.sock", "--admin-socket", self.folder / "admin.sock"),
        )
        self.admin = gpuwm.connect(self.folder / "gpuwm.sock", admin=True, wait=WAIT_S)

    def load(self, tag: str, seed: int) -> None:
        folder = self.folder / "models" / tag
        make = ("--bytes", "256K", "--tensors", "4", "--seed", str(seed))
        subprocess.run(
            [ROOT / "scripts/make-checkpoint", folder, *make], check=True, stdout=subprocess.DEVNULL
        )
        self.admin.load(folder, f"m@{tag}", devices="host").wait(WAIT_S)

    def served(self) -> dict[str, str]:
        """The version of each address, as gpuwmd tells it."""
        found: dict[str, str] = {}
        for client in self.admin.clients():
            for lease in sorted(client["leases"], key=lambda lease: lease["lease"]):
                if "address" in lease:
                    found[lease["address"]] = f"m@{lease['tag']}"
        return found

    # ---- HAProxy ----

    def _write_haproxy_cfg(self) -> None:
        """follow/haproxy.cfg with this machine's paths and users."""
        text = (ROOT / "follow/haproxy.cfg").read_text()
        for old, new in (
            (
                "/run/haproxy/gpuwm-follow.sock user haproxy group haproxy",
                f"{self.folder}/haproxy.sock",
            ),
            ("/run/gpuwm-follow/haproxy-state", f"{self.folder}/haproxy-state"),
            ("bind :8080", f"bind 127.0.0.1:{self.port}"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        (self.folder / "haproxy.cfg").write_text(text)
        self.forget_haproxy_state()

    def forget_haproxy_state(self) -> None:
        (self.folder / "haproxy-state").write_text("1\n")

    def start_haproxy(self, *more: object) -> None:
        before = self.haproxy
        self.haproxy = self.start(
            "haproxy", "haproxy", "-db", "-f", self.folder / "haproxy.cfg", *more
        )
        eventually("HAProxy answers", lambda: self._is_up(before))

    def _is_up(self, before: subprocess.Popen[bytes] | None) -> bool:
        told = self.ask_haproxy("show info")
        return f"Pid: {self.haproxy.pid}\n" in told if self.haproxy else before is None

    def reload_haproxy(self) -> None:
        """As systemd does: another one takes the sockets over, and the first ends when it is done."""
        assert self.haproxy
        self.start_haproxy("-x", self.folder / "haproxy.sock", "-sf", self.haproxy.pid)

    def ask_haproxy(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(WAIT_S)
            try:
                sock.connect(str(self.folder / "haproxy.sock"))
            except OSError:
                return ""
            sock.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: sock.recv(65536), b"")).decode()

    def in_service(self) -> set[str]:
        """The addresses that get requests."""
        found = set()
        for line in self.ask_haproxy("show servers state workers").splitlines()[2:]:
            words = line.split()
            if len(words) > 18 and int(words[6]) & 0x2B == 0:  # neither maintenance nor drain
                found.add(f"{words[4]}:{words[18]}")
        return found

    def requests_at(self, address: str) -> int:
        """How many connections to the address have a request."""
        for line in self.ask_haproxy("show servers conn workers").splitlines()[1:]:
            words = line.split()
            if len(words) > 6 and f"{words[2]}:{words[3]}" == address:
                return int(words[6])
        return 0

    # ---- gpuwm-follow ----

    def start_follow(self) -> None:
        """As docs/how-to/routing.md says, with this machine's paths and the test's model."""
        words = by_hand()[1:]
        for old, new in (
            ("llama@prod=workers", "m=workers"),
            ("/run/haproxy/gpuwm-follow.sock", f"{self.folder}/haproxy.sock"),
            ("/run/gpuwm-follow/haproxy-state", f"{self.folder}/haproxy-state"),
        ):
            words[words.index(old)] = new
        self.follow = self.start("follow", BUILD / "bin/gpuwm-follow", *words, "--check", 0.2, "--keep", 3)

    def start_hook(self) -> None:
        """Another gpuwm-follow, for a load balancer that a command tells."""
        command = f"cat >{self.folder}/list.new && mv {self.folder}/list.new {self.folder}/list"
        self.start(
            "hook",
            BUILD / "bin/gpuwm-follow",
            "--backend",
            "m=workers",
            "--keep",
            3,
            "--exec",
            command,
        )

    def listed(self) -> set[str]:
        """The addresses that the command was told to send requests to."""
        path = self.folder / "list"
        backends = json.loads(path.read_text())["backends"] if path.exists() else []
        return {s["address"] for b in backends for s in b["servers"] if s["state"] == "ready"}

    # ---- workers ----

    def start_worker(self, *more: str) -> Worker:
        return Worker(self, *more)


class Worker:
    def __init__(self, machine: Machine, *more: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.machine = machine
        self.name = f"worker-{self.address}"
        self.process = machine.start(
            self.name, "python3", ROOT / "python/examples/serving.py", "m", self.address, *more
        )

    def wait_in_service(self) -> Worker:
        eventually(
            f"{self.address} gets requests: {self.machine.log(self.name)}",
            lambda: self.address in self.machine.in_service(),
        )
        return self

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ended_well(self) -> bool:
        return self.process.wait(WAIT_S) == 0


def leave(workers: list[Worker]) -> None:
    """As `systemctl stop` of each."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        assert worker.ended_well(), worker.machine.log(worker.name)
