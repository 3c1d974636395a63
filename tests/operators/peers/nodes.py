"""Nodes of a cluster: each has a network namespace, a gpuwmd and a gpuwm-peer. A hub joins them."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable
from typing import Any

BUILD = pathlib.Path(os.environ["GPUWM_BUILD"])
RATE, RATE_BYTES = "400mbit", 50e6  # of a link, a second
PORT = 9465
WAIT_S = 60.0


def run(*words: object) -> str:
    """Runs a program that must succeed."""
    told = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert told.returncode == 0, f"{words}: {told.stdout}{told.stderr}"
    return told.stdout


def eventually(what: str, holds: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    """Polls a state that other processes change."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.02)
    return found


class Network:
    """A hub with a bridge, in a namespace of its own, and a link to each node."""

    def __init__(self) -> None:
        self.hub = f"gpuwm-{os.getpid()}-hub"
        self.names = [self.hub]
        run("ip", "netns", "add", self.hub)
        run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "br0", "up")

    def join(self, number: int) -> str:
        """Makes a namespace with the address 10.99.0.NUMBER, and returns its name."""
        name = f"gpuwm-{os.getpid()}-{number}"
        run("ip", "netns", "add", name)
        self.names.append(name)
        port = f"to{number}"
        run("ip", "-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", self.hub, "link", "set", port, "master", "br0", "up")
        run("ip", "-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", link, "up")
        for namespace, link in ((self.hub, port), (name, "eth0")):
            run("tc", "-n", namespace, "qdisc", "add", "dev", link, "root", "tbf", "rate", RATE,
                "burst", "256kb", "latency", "100ms")
        return name

    def link(self, number: int, state: str) -> None:
        """Sets a node's link up or down, at the hub's side."""
        run("ip", "-n", self.hub, "link", "set", f"to{number}", state)

    def rate(self, number: int, rate: str) -> None:
        """Holds a node's link to a rate, at both sides."""
        for namespace, link in ((self.hub, f"to{number}"), (self.names[number], "eth0")):
            run("tc", "-n", namespace, "qdisc", "replace", "dev", link, "root", "tbf", "rate", rate,
                "burst", "256kb", "latency", "100ms")

    def end(self) -> None:
        """Removes everything. What runs there is gone already."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


class Node:
    """One machine. Its version of the model, if it has one, is m@v1."""

    def __init__(self, network: Network, folder: pathlib.Path, number: int, secret: pathlib.Path) -> None:
        self.number = number
        self.address = f"10.99.0.{number}"
        self.folder = folder / f"node{number}"
        self.folder.mkdir()
        self.namespace = network.join(number)
        self.socket = self.folder / "gpuwm.sock"
        self.config = self.folder / "gpuwmd.conf"
        self.root = folder
        self.secret = secret
        self.env = {**os.environ, "GPUWM_SOCKET": str(self.socket)}
        self.numbers = itertools.count()
        self.gpuwmd: subprocess.Popen[bytes] | None = None
        self.peer: subprocess.Popen[bytes] | None = None

    def configure(self, peers: list[str]) -> None:
        """Writes the configuration."""
        lines = ["[loader]", f"root = {self.root}", "[peers]", f"secret = {self.secret}"]
        lines += [f"listen = {self.address}:{PORT}", *(f"peer = {peer}" for peer in peers)]
        self.config.write_text("\n".join(lines) + "\n")

    def spawn(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        """Starts a program in the node's namespace. Its log is NAME.log."""
        inside = ["ip", "netns", "exec", self.namespace, *(str(word) for word in words)]
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(inside, env=self.env, stdout=log, stderr=log)

    def start(self, peers: list[str] | None = None) -> None:
        """Starts gpuwmd and gpuwm-peer."""
        self.configure(peers or [])
        self.gpuwmd = self.spawn("gpuwmd", BUILD / "bin/gpuwmd", "--config", self.config, "--socket", self.socket)
        eventually("gpuwmd stands by", self.stands_by)
        self.start_peer()

    def start_peer(self) -> None:
        """Starts gpuwm-peer, and waits until it listens."""
        self.peer = self.spawn("peer", BUILD / "bin/gpuwm-peer", "--config", self.config, "--socket", self.socket)
        eventually("gpuwm-peer listens", self.listens)

    def listens(self) -> bool:
        told = run("ip", "netns", "exec", self.namespace, "ss", "-Hltn", f"sport = :{PORT}")
        return str(PORT) in told

    def ports(self) -> set[str]:
        """Where somebody listens, as ADDRESS:PORT."""
        told = run("ip", "netns", "exec", self.namespace, "ss", "-Hltn")
        return {line.split()[3] for line in told.splitlines()}

    def kill_peer(self) -> None:
        assert self.peer
        self.peer.kill()
        self.peer.wait()
        self.peer = None

    def stands_by(self) -> bool:
        told = self.ctl("-o", "json", "status", check=False)
        return told.returncode == 0 and bool(json.loads(told.stdout)["standby"])

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs gpuwmctl."""
        told = subprocess.run(
            [str(BUILD / "bin/gpuwmctl"), *words], env=self.env, check=False, capture_output=True, text=True
        )
        assert told.returncode == 0 or not check, f"{words}: {told.stdout}{told.stderr}"
        return told

    def load(self, source: str, name: str = "", *words: str) -> int:
        """Begins a load, and returns its job. Without a name the version gets a new one: a name that was retired is taken for as long as
        gpuwm-peer keeps the version attached."""
        told = json.loads(self.ctl("-o", "json", "load", source, name or f"m@n{next(self.numbers)}", *words).stdout)
        return int(told["job"])

    def job(self, number: int) -> Any:
        return json.loads(self.ctl("-o", "json", "jobs", str(number)).stdout)["jobs"][0]

    def taken(self, number: int) -> int:
        """How many bytes of the copy have come."""
        told = self.job(number)
        return int(told["done"]) if told["phase"] == "taking" else 0

    def ended(self, number: int) -> Any:
        """Waits for the end of a job, and returns what is told of it."""
        def look() -> Any:
            told = self.job(number)
            return told if told["state"] in ("done", "failed", "cancelled") else None

        return eventually("the job ends", look, 150)

    def content(self, name: str) -> str:
        """The content digest of a version, after its memory was read again."""
        self.ctl("verify", name, "--wait")
        told = json.loads(self.ctl("-o", "json", "show", name).stdout)
        return str(told["version"]["content"])

    def cpu_seconds(self) -> float:
        """What gpuwmd, its loaders that have ended, and gpuwm-peer have used so far."""
        ticks = 0
        for process in (self.peer, self.gpuwmd):
            if process:
                told = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(int(each) for each in told[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def sent(self) -> int:
        """How many bytes have left the node by its link, packets that repeat others among them."""
        told = json.loads(run("ip", "-n", self.namespace, "-s", "-j", "link", "show", "eth0"))
        return int(told[0]["stats64"]["tx"]["bytes"])

    def end(self) -> None:
        for process in (self.peer, self.gpuwmd):
            if process and process.poll() is None:
                process.kill()
                process.wait()
