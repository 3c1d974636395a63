"""DataLoader: workers whose dataset holds tensors of a version, or references to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import Daemon, eventually, on_host
from torch.utils.data import DataLoader, Dataset

import gpuwm

pytestmark = on_host

VALUES = np.arange(24, dtype=np.float32).reshape(8, 3)
contexts = pytest.mark.parametrize("context", ["fork", "spawn"])


class Rows(Dataset[torch.Tensor]):
    """Of a tensor, and twice those of a reference."""

    def __init__(self, tensor: torch.Tensor, reference: gpuwm.Ref) -> None:
        self.tensor, self.reference = tensor, reference

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensor[index] + 2 * self.reference.torch()[index]


class InPlace(Rows):
    """What lies in the version itself."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensor[index]


@pytest.fixture(scope="module")
def name(daemon: Daemon) -> str:
    return daemon.load("rows@v1", {"a": VALUES})


@contexts
def test_batches_are_made_of_what_a_dataset_holds(daemon: Daemon, name: str, context: str) -> None:
    with gpuwm.attach(name) as mapping:
        rows = Rows(mapping.torch("a"), mapping.ref("a"))
    loader = DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context=context)
    for _ in range(2 if context == "fork" else 1):
        assert torch.equal(torch.cat(list(loader)), torch.from_numpy(3 * VALUES))
    del loader
    eventually(lambda: daemon.leases(name) == 1)
    assert torch.equal(rows.tensor, torch.from_numpy(VALUES))


@contexts
def test_rows_come_back_as_references(daemon: Daemon, name: str, context: str) -> None:
    with gpuwm.attach(name) as mapping:
        rows = InPlace(mapping.torch("a"), mapping.ref("a"))
    loader = DataLoader(rows, batch_size=None, num_workers=1, multiprocessing_context=context)
    found = list(loader)
    del loader
    assert torch.equal(torch.stack(found), torch.from_numpy(VALUES))
    assert {gpuwm.ref(row).name for row in found} == {"a"}
    assert [row.storage_offset() for row in found] == list(range(0, 24, 3))
    del rows
    eventually(lambda: daemon.leases(name) == 1)
    found.clear()
    eventually(lambda: daemon.leases(name) == 0)
