"""After a fork: the child reads what it has, and the parent's lease is the parent's."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import BACKEND, Daemon, Tensors, eventually, on_host

import gpuwm

ONES = np.ones(64, np.float32)


@pytest.fixture
def version(checkpoint: Callable[[Tensors], str]) -> str:
    return checkpoint({"a": ONES})


def in_child(body: Callable[[], None]) -> None:
    """Runs it in a forked child, which must end without an exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_calls_in_the_child_say_so(daemon: Daemon, version: str) -> None:
    w = gpuwm.attach(version)
    tensor = w["a"]
    client = gpuwm.connect()

    def body() -> None:
        calls: tuple[Callable[[], object], ...] = (
            *(client.ping, w.close, tensor.__dlpack__, tensor.tobytes, w.check),
            *(lambda: w.metadata, lambda: list(w.files)),
        )
        for call in calls:
            with pytest.raises(gpuwm.InChild):
                call()

    in_child(body)
    eventually(lambda: daemon.leases(version) == 1)
    w.check()


def test_the_child_attaches_by_itself(daemon: Daemon, version: str) -> None:
    held = gpuwm.attach(version)["a"]

    def body() -> None:
        if BACKEND != "host":
            with pytest.raises(gpuwm.Unsupported, match='"spawn" in Python'):
                gpuwm.attach(version)
            return
        tensor = gpuwm.attach(version)["a"]
        assert tensor.tobytes() == ONES.tobytes()
        rows = gpuwm.connect().list(version.partition("@")[0])["versions"]
        assert [row["leases"] for row in rows] == [2]

    in_child(body)
    eventually(lambda: daemon.leases(version) == 1)
    del held


@on_host
def test_the_child_reads_and_its_end_leaves_the_lease(daemon: Daemon, version: str) -> None:
    w = gpuwm.attach(version)
    held: list[Any] = [w["a"].torch(), w["a"].numpy(), w["a"].memoryview()]

    def body() -> None:
        assert float(held[0].sum()) == 64
        assert float(held[1].sum()) == 64
        held.clear()

    in_child(body)
    eventually(lambda: daemon.leases(version) == 1)
    assert float(held[0].sum()) == 64


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensor[index] * 2


@on_host
def test_a_data_loader_with_forked_workers_reads(daemon: Daemon, version: str) -> None:
    tensor = gpuwm.attach(version).torch("a")
    loader = torch.utils.data.DataLoader(
        Rows(tensor), batch_size=16, num_workers=2, multiprocessing_context="fork"
    )
    assert sum(float(batch.sum()) for batch in loader) == 128
    eventually(lambda: daemon.leases(version) == 1)
