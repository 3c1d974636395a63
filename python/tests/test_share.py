"""One tensor is shared, and versions without a name."""

from __future__ import annotations

import gc
import os
import pickle

import pytest
import torch
from conftest import Daemon, run_python

import gpuwm


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
    with pytest.raises(gpuwm.Invalid, match="a list can't be shared in place"):
        gpuwm.share([1.0], name)  # type: ignore[arg-type]


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
