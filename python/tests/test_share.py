"""One tensor is shared, and versions without a name."""

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import subprocess
import sys

import pytest
import torch
from conftest import Daemon, eventually, run_python

import gpuwm

# What 2,000 shares may add to gpuwmd's memory. If each left 1 KiB, it would be more.
GROWTH_KIB = 1500


def test_one_tensor_is_shared(daemon: Daemon) -> None:
    name = "table@v1"
    tensor = torch.arange(6.0).reshape(2, 3).t()
    shared = gpuwm.share(tensor, name)
    assert torch.equal(shared, tensor)
    assert shared.stride() == tensor.stride()
    assert shared.data_ptr() != tensor.data_ptr()
    assert daemon.leases(name) == 1
    with gpuwm.attach(name) as w:
        assert list(w) == ["tensor"]
        assert w.torch("tensor").data_ptr() == shared.data_ptr()
    code = "import sys, gpuwm; print(gpuwm.attach(sys.argv[1]).torch('tensor').sum().item())"
    assert run_python(code, name).strip() == "15.0"
    with pytest.raises(gpuwm.Exists):
        gpuwm.share(tensor, name)
    with pytest.raises(TypeError, match="^tensor=.*: give a tensor of torch"):
        gpuwm.share([1.0], name)  # type: ignore[arg-type]


def test_a_name_expires(daemon: Daemon) -> None:
    kept = gpuwm.share(torch.ones(2), "expires@a", ttl=0.1)
    eventually(lambda: _state(daemon, "expires") == ["retiring"])
    gpuwm.share(torch.ones(2), "expires@b", keep_last=1)
    gpuwm.share(torch.ones(2), "expires@c", keep_last=1)
    eventually(lambda: _state(daemon, "expires") == ["retiring", "ready"])
    assert kept.tolist() == [1, 1]
    with pytest.raises(gpuwm.Invalid, match="without a name can't have a place in a cache"):
        gpuwm.share(torch.ones(2), ttl=1)


def _state(daemon: Daemon, model: str) -> list[str]:
    return [version["state"] for version in daemon.admin.list(model)["versions"]]


SEES = """
import sys, pickle, gpuwm
tensor = pickle.loads(bytes.fromhex(sys.argv[1])).torch()
print(tensor.sum().item())
"""


def test_a_tensor_is_shared_without_a_name(daemon: Daemon) -> None:
    tensor = torch.arange(6.0)
    shared = gpuwm.share(tensor)
    assert torch.equal(shared, tensor)
    reference = gpuwm.ref(shared)
    assert run_python(SEES, pickle.dumps(reference).hex()).strip() == "15.0"
    mine = f"~{os.getuid()}@"
    assert reference.label == mine + reference.version
    with gpuwm.attach(reference.version) as w:
        assert w.torch("tensor").data_ptr() == shared.data_ptr()
    del shared
    gc.collect()
    with pytest.raises(gpuwm.NotFound):
        reference.torch()


@pytest.mark.usefixtures("daemon")
def test_what_has_no_name_is_bound_and_has_one_part() -> None:
    tensors = {"a": torch.ones(2)}
    with pytest.raises(gpuwm.Invalid, match="freed at once"):
        gpuwm.publish(tensors, bind=False)  # type: ignore[call-overload]
    for wrong, what in (
        ({"alias": "prod"}, "an alias"),
        ({"world": 2}, "several ranks"),
        ({"join_uids": [1]}, "joiners"),
    ):
        with pytest.raises(gpuwm.Invalid, match=f"without a name can't have {what}"):
            gpuwm.publish(tensors, **wrong)
    mapping = gpuwm.publish(tensors)
    assert torch.equal(mapping.torch("a"), tensors["a"])


def test_nothing_is_left_of_one_whose_maker_died(daemon: Daemon) -> None:
    killed = "import os, torch, gpuwm; s = gpuwm.share(torch.ones(8)); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -9
    eventually(lambda: daemon.admin.status()["nameless"] == 0)


def _figures(daemon: Daemon) -> tuple[int, int, int]:
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return (
        int(rss.split()[1]),
        len(os.listdir(f"/proc/{daemon.pid}/fd")),
        len(os.listdir("/proc/self/fd")),
    )


def test_thousands_leave_nothing(daemon: Daemon) -> None:
    def shared(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            gpuwm.share(torch.ones(16))
        eventually(lambda: daemon.admin.status()["nameless"] == 0)
        return _figures(daemon)

    rss, fds, own = shared(300)
    after = shared(2000)
    assert after[0] < rss + GROWTH_KIB
    assert after[2] <= own  # what earlier tests held may go meanwhile
    assert abs(after[1] - fds) <= 4  # a checker of a GPU's memory may have come or gone
