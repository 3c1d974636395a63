"""Addresses of workers, as an operator sees them."""

from __future__ import annotations

import http.client
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually, running

import gpuwm

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
HERE = "10.0.0.5:8000"
Checkpoint = Callable[[Any], str]


def served(daemon: Daemon) -> list[tuple[str, str]]:
    """Where which versions are served."""
    leases = [lease for client in daemon.admin.clients() for lease in client["leases"]]
    return [(lease["tag"], lease["address"]) for lease in leases if "address" in lease]


def small(fill: int) -> dict[str, Any]:
    return {"w": np.full(8, fill, np.float32)}


def test_an_address_goes_with_its_mapping(daemon: Daemon, checkpoint: Checkpoint) -> None:
    first, second = checkpoint(small(1)), checkpoint(small(2))
    tag, next_tag = (name.split("@")[1] for name in (first, second))
    mapping = gpuwm.attach(first, address=HERE, glob="w*")
    assert served(daemon) == [(tag, HERE)]
    mapping.switch(second)
    assert served(daemon) == [(next_tag, HERE)]
    other = gpuwm.attach(first)
    mapping.exchange(other)
    assert served(daemon) == [(tag, HERE)]
    mapping.announce("unix:/run/w.sock")
    assert served(daemon) == [(tag, "unix:/run/w.sock")]
    mapping.announce(None)
    assert served(daemon) == []
    mapping.announce(HERE)
    mapping.close()
    assert served(daemon) == []


def test_an_address_of_some_layers(daemon: Daemon, checkpoint: Checkpoint) -> None:
    name = checkpoint({"model.layers.0.w": np.ones(8, np.float32)})
    with gpuwm.attach(name, layers=[0], address=HERE) as mapping:
        assert [address for _, address in served(daemon)] == [HERE]
        mapping.close()


def test_what_is_no_address_is_refused(daemon: Daemon, checkpoint: Checkpoint) -> None:
    name = checkpoint(small(1))
    with pytest.raises(gpuwm.errors.Invalid, match="has no port"):
        gpuwm.attach(name, address="here")
    with pytest.raises(gpuwm.errors.Invalid, match="copy=True with an address"):
        gpuwm.attach(name, copy=True, address=HERE)  # type: ignore[call-overload]
    mapping = gpuwm.attach(name)
    with pytest.raises(TypeError, match="address=8000"):
        mapping.announce(8000)  # type: ignore[arg-type]
    assert served(daemon) == []


def test_an_address_outlives_gpuwmd() -> None:
    with running(keeper=True) as daemon:
        daemon.load("m@v1", small(1))
        mapping = gpuwm.attach("m", address=HERE)
        daemon.restart()
        mapping.announce(HERE)  # returns when the lease is there again
        assert served(daemon) == [("v1", HERE)]


def asked(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    version: str = json.loads(connection.getresponse().read())["version"]
    connection.close()
    return version


def test_the_serving_example_follows_and_leaves(daemon: Daemon) -> None:
    for tag, fill in (("v1", 1), ("v2", 2)):
        daemon.load(f"served@{tag}", small(fill))
    words = [sys.executable, str(EXAMPLES / "serving.py"), "served", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            address = worker.stdout.readline().split()[-1]
            port = int(address.rpartition(":")[2])
            assert asked(port) == "served@v1"
            assert served(daemon) == [("v1", address)]
            daemon.admin.swap("served", "v2")
            assert worker.stdout.readline() == "serves served@v2\n"
            assert asked(port) == "served@v2"
            assert served(daemon) == [("v2", address)]
            worker.terminate()
            eventually(lambda: served(daemon) == [])
            assert asked(port) == "served@v2", "requests that are still on their way"
            assert worker.stdout.readline() == "left\n"
            assert worker.wait(30) == 0
        finally:
            worker.kill()
    eventually(lambda: daemon.leases("served@v2") == 0)
