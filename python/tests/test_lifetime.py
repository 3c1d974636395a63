"""How long a lease lives: until the last tensor, whoever made it, is gone."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import BACKEND, Daemon, Tensors, eventually, on_host, run_python

import gpuwm

ONES = np.ones(1024, np.float32)


@pytest.fixture
def version(checkpoint: Callable[[Tensors], str]) -> str:
    return checkpoint({"a": ONES, "b": ONES * 2})


def forms() -> dict[str, Callable[[gpuwm.Mapping], Any]]:
    """All that holds a tensor."""
    everywhere: dict[str, Callable[[gpuwm.Mapping], Any]] = {
        "tensor": lambda w: w["a"],
        "capsule": lambda w: w["a"].__dlpack__(),
        "versioned": lambda w: w["a"].__dlpack__(max_version=(1, 0)),
    }
    where_torch_reaches: dict[str, Callable[[gpuwm.Mapping], Any]] = {
        "torch": lambda w: w["a"].torch(),
        "torch view": lambda w: w["a"].torch()[1:].view(-1),
        "state_dict": lambda w: w.state_dict(),
    }
    on_cpu: dict[str, Callable[[gpuwm.Mapping], Any]] = {
        "numpy": lambda w: w["a"].numpy(),
        "numpy view": lambda w: w["a"].numpy()[3:],
        "from_dlpack": lambda w: np.from_dlpack(w["a"]),
        "memoryview": lambda w: w["a"].memoryview()[4:],
        "slice": lambda w: w.get_slice("a", "np")[1:],
    }
    found = everywhere | (where_torch_reaches if BACKEND != "fakecuda" else {})
    return found | (on_cpu if BACKEND == "host" else {})


@pytest.mark.parametrize("form", forms())
def test_the_lease_lives_as_long_as(daemon: Daemon, version: str, form: str) -> None:
    with gpuwm.attach(version) as w:
        held = forms()[form](w)
    del w
    gc.collect()
    assert daemon.leases(version) == 1
    if form.startswith("torch"):
        assert float(held.view(-1)[0]) == ONES.flat[0]
    elif form not in ("tensor", "capsule", "versioned", "state_dict"):
        assert bytes(np.asarray(held).tobytes()[:4]) == ONES.tobytes()[:4]
    del held
    eventually(lambda: daemon.leases(version) == 0)


def test_a_tensor_serves_others_after_its_mapping(daemon: Daemon, version: str) -> None:
    with gpuwm.attach(version) as w:
        tensor = w["b"]
    with pytest.raises(gpuwm.Closed, match="the mapping was closed: attach anew"):
        w["b"]
    assert tensor.tobytes() == (ONES * 2).tobytes()
    capsule = tensor.__dlpack__()
    del tensor
    assert daemon.leases(version) == 1
    del capsule
    eventually(lambda: daemon.leases(version) == 0)


def test_close_is_refused_while_tensors_live(daemon: Daemon, version: str) -> None:
    w = gpuwm.attach(version)
    held = [w["a"].__dlpack__() for _ in range(3)]
    with pytest.raises(gpuwm.Busy, match=r"\b3\b"):
        w.close()
    assert w.exports == 3
    assert w["a"].tobytes() == ONES.tobytes()
    held.clear()
    w.close()
    w.close()
    eventually(lambda: daemon.leases(version) == 0)
    with pytest.raises(gpuwm.Closed):
        list(w.keys())
    assert repr(w) == "<gpuwm.Mapping, closed>"


RACE = """
import sys, threading, gpuwm
def use(w):
    try:
        while True:
            w["a"].tobytes(), w["b"].memoryview, w.version, w.metadata, dict(w.files), w.infos()
            w["b"].__dlpack__(), w.exports, w.check(), w.verify("a")
    except gpuwm.Closed:
        ended.append(w)
for _ in range(8):
    ended = []
    w = gpuwm.attach(sys.argv[1])
    threads = [threading.Thread(target=use, args=(w,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    while True:
        try:
            w.close()
            break
        except gpuwm.Busy:
            pass
    for thread in threads:
        thread.join()
    assert len(ended) == 4
"""


def test_close_waits_for_no_call_and_cuts_none_short(version: str) -> None:
    run_python(RACE, version)
    w = gpuwm.attach(version)
    with w._held().use(), pytest.raises(gpuwm.Busy, match="another thread is in a call"):
        w.close()
    w.close()


def test_tensors_of_a_closed_mapping_say_so(version: str) -> None:
    w = gpuwm.attach(version)
    tensor = w["a"]
    w.close()
    with pytest.raises(gpuwm.Closed):
        tensor.tobytes()
    with pytest.raises(gpuwm.Closed):
        tensor.__dlpack__()


def test_garbage_in_a_cycle_gives_the_lease_back(daemon: Daemon, version: str) -> None:
    cycle: list[Any] = [gpuwm.attach(version)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    eventually(lambda: daemon.leases(version) == 0)


def test_tensors_end_in_any_thread(daemon: Daemon, version: str) -> None:
    def worker() -> None:
        for _ in range(20):
            with gpuwm.attach(version) as w:
                capsules = [w["a"].__dlpack__(), w["b"].__dlpack__()]
            del capsules

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: daemon.leases(version) == 0)


def test_two_versions_at_once(checkpoint: Callable[[Tensors], str]) -> None:
    one, two = (checkpoint({"a": ONES * n}) for n in (1, 2))
    with gpuwm.attach(one) as first, gpuwm.attach(two) as second:
        assert first["a"].tobytes() == ONES.tobytes()
        assert second["a"].tobytes() == (ONES * 2).tobytes()


def test_a_version_stays_while_a_tensor_does(daemon: Daemon, version: str) -> None:
    held = gpuwm.attach(version)["a"]
    model = version.partition("@")[0]
    daemon.admin.swap(model, None)
    daemon.admin.retire(version)
    with pytest.raises(gpuwm.NotFound, match="retiring"):
        gpuwm.attach(version)
    assert held.tobytes() == ONES.tobytes()
    del held
    eventually(lambda: not daemon.admin.list(model)["versions"])


# Imports once and ends often: each child ends as an interpreter does, with all that it holds.
AT_EXIT = """
import gc, os, sys, threading
import gpuwm
with_torch = sys.argv[2].startswith("torch")
if with_torch:
    import torch
elif sys.argv[2] == "numpy":
    import numpy

def hold(w):
    tensor = w["a"]
    held = [w, tensor, tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))]
    if with_torch:
        held.append(tensor.torch())
    if sys.argv[2] in ("numpy", "torch"):
        held += [tensor.memoryview(), tensor.numpy()]
    return held

def use():
    global of_module, client
    of_module = hold(gpuwm.attach(sys.argv[1]))
    sys.held = hold(gpuwm.attach(sys.argv[1]))
    cycle = [hold(gpuwm.attach(sys.argv[1]))]
    cycle.append(cycle)
    del cycle
    client = gpuwm.connect()
    started = threading.Event()

    def in_thread():
        held = hold(gpuwm.attach(sys.argv[1]))
        with gpuwm.events() as events:
            started.set()
            for event in events:
                pass

    threading.Thread(target=in_thread, daemon=True).start()
    started.wait()

for run in range(int(sys.argv[3])):
    if os.fork() == 0:
        use()
        sys.exit(0)
    _, status = os.wait()
    assert status == 0, status
use()
"""


FRAMEWORKS = {
    "host": [("numpy", 20), ("torch", 4)],
    "fakecuda": [("none", 20)],
    "cuda": [("none", 4), ("torch on a GPU", 4)],
}


@pytest.mark.parametrize(("framework", "runs"), FRAMEWORKS[BACKEND])
def test_exit_with_live_tensors_is_clean(
    daemon: Daemon, version: str, framework: str, runs: int
) -> None:
    assert run_python(AT_EXIT, version, framework, str(runs)) == ""
    eventually(lambda: daemon.leases(version) == 0)


WRITES = """
import sys, ctypes, gpuwm
tensor = gpuwm.attach(sys.argv[1])["a"]
ctypes.memset(ctypes.addressof(ctypes.c_ubyte.from_address(tensor._address())), 0, 1)
"""


@on_host
def test_a_write_faults(version: str) -> None:
    with pytest.raises(AssertionError, match="-11"):
        run_python(WRITES, version)
