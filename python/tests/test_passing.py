"""Tensors that are passed on to other processes, and what is never a reference."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from binding_models import Net, trained, within
from conftest import DEVICE, Daemon, by_torch, eventually, on_host, run_python
from torch import nn

import gpuwm
from gpuwm._torch import guards

pytestmark = by_torch

IDS = torch.arange(8, device=DEVICE)


@pytest.fixture(scope="module")
def loaded(daemon: Daemon) -> str:
    return daemon.load("passed@v1", {"w": np.arange(24.0).reshape(4, 6), "v": np.arange(4)})


@pytest.fixture
def name(daemon: Daemon, loaded: str) -> str:
    """The version, without the leases of the test before: the library's thread ends them when it
    gets a processor."""
    eventually(lambda: daemon.leases(loaded) == 0)
    return loaded


def sent(value: Any) -> bytes:
    """As multiprocessing sends it."""
    return bytes(ForkingPickler.dumps(value))


def there(code: str, value: bytes, *arguments: str) -> str:
    """What another process prints of `value`."""
    return run_python(
        f"import sys, pickle\nvalue = pickle.loads(bytes.fromhex(sys.argv[1]))\n{code}",
        value.hex(),
        *arguments,
    ).strip()


# ---- tensors -----------------------------------------------------------------------------------


def test_a_tensor_is_a_reference_anywhere(daemon: Daemon, name: str) -> None:
    with gpuwm.attach(name) as mapping:
        whole = mapping.torch("w")
    view = whole[1:3, ::2].t()
    message = sent(view)
    assert len(message) < 1000
    script = """
import gpuwm
print(value.tolist(), gpuwm.ref(value).name)
again = pickle.loads(bytes.fromhex(sys.argv[1]))  # any number of times
print(again.tolist(), again is value)
"""
    assert there(script, message).split("\n") == [f"{view.tolist()} w", f"{view.tolist()} False"]
    if DEVICE == "cpu":  # torch says of all memory of a GPU that it is shared
        assert not whole.is_shared()  # type: ignore[no-untyped-call] # torch moved nothing
    eventually(lambda: daemon.leases(name) == 1)


def test_views_of_all_kinds(daemon: Daemon, name: str) -> None:
    mapping = gpuwm.attach(name)
    whole = mapping.torch("w")
    for view in (
        whole,
        whole[3],
        whole[2, 1],
        whole.view(torch.int32)[:, 3],
        whole[:0],
        whole.expand(2, 4, 6),
        whole.detach(),
        torch.view_as_complex(whole.view(12, 2)).conj(),
    ):
        got = pickle.loads(sent(view))
        assert torch.equal(got, view)
        assert (got.dtype, got.stride()) == (view.dtype, view.stride())
    first, second = pickle.loads(sent((whole, whole)))
    assert first is second


def test_a_received_tensor_has_a_lease_of_its_own(daemon: Daemon, name: str) -> None:
    mapping = gpuwm.attach(name)
    got = [pickle.loads(sent(mapping.torch(key))) for key in ("w", "v")]
    assert daemon.leases(name) == 2  # one for both
    del mapping
    eventually(lambda: daemon.leases(name) == 1)
    again = pickle.loads(sent(got[0][1:]))
    del got
    assert again.tolist() == np.arange(24.0).reshape(4, 6)[1:].tolist()
    del again
    eventually(lambda: daemon.leases(name) == 0)


def test_what_lies_in_no_version_goes_torchs_way(daemon: Daemon, name: str) -> None:
    mapping = gpuwm.attach(name)
    mapping.torch("w")
    for own in (torch.arange(4, device="cpu"), nn.Parameter(torch.ones(3, device="cpu"))):
        assert torch.equal(pickle.loads(ForkingPickler.dumps(own)), own)


@on_host
def test_private_writes_go_torchs_way(daemon: Daemon, name: str) -> None:
    copied = gpuwm.attach(name, writes="private").torch("w")
    copied.add_(1)
    assert torch.equal(pickle.loads(ForkingPickler.dumps(copied)), copied)
    with pytest.raises(gpuwm.Invalid, match="no version"):
        gpuwm.ref(copied)


def _echo(inbox: Any, outbox: Any) -> None:
    while (tensor := inbox.get()) is not None:
        outbox.put((os.getpid(), float(tensor.sum()), tensor))
        del tensor


def test_four_consumers_twice_each(daemon: Daemon, name: str) -> None:
    tensor = gpuwm.attach(name).torch("w")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["torch", "gpuwm._torch.tensors"])
    inbox, outbox = context.Queue(), context.Queue()
    consumers = [context.Process(target=_echo, args=(inbox, outbox)) for _ in range(4)]
    for consumer in consumers:
        consumer.start()
    for _ in range(8):
        inbox.put(tensor)
    for _ in range(8):
        _, total, got = outbox.get(timeout=60)
        assert total == 276
        assert torch.equal(got, tensor)
        del got
    for _ in consumers:
        inbox.put(None)
    for consumer in consumers:
        consumer.join(60)
        assert consumer.exitcode == 0
    eventually(lambda: daemon.leases(name) == 1)
    del tensor
    eventually(lambda: daemon.leases(name) == 0)


def test_a_version_that_is_gone_is_named(daemon: Daemon) -> None:
    name = daemon.load("gone@v1", {"w": np.arange(4)})
    daemon.admin.swap("gone", None)
    mapping = gpuwm.attach(name)
    message, reference = sent(mapping.torch("w")), mapping.ref("w")
    mapping.drop()
    eventually(lambda: daemon.leases(name) == 0)
    daemon.admin.retire(name, wait=10)
    for receive in (lambda: pickle.loads(message), reference.open, reference.torch):
        with pytest.raises(gpuwm.NotFound, match=r"gone@v1.*tensor w"):
            receive()


# ---- models ------------------------------------------------------------------------------------


def _run(rank: int, model: nn.Module, queue: Any) -> None:
    shared = [n for n, p in model.named_parameters() if isinstance(p, guards.Shared)]
    kinds = all(isinstance(p, nn.Parameter) and not p.requires_grad for p in model.parameters())
    tied = model.get_parameter("head.weight") is model.get_parameter("embed.weight")
    queue.put((shared, kinds, tied, model(IDS).tolist()))


def test_a_bound_model_is_spawned(daemon: Daemon) -> None:
    model = trained()
    mapping = gpuwm.publish(model, "spawned@v1")
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    mp.spawn(_run, args=(model, queue), nprocs=1)  # type: ignore[attr-defined, no-untyped-call]
    shared, kinds, tied, logits = queue.get()
    assert shared == [n for n, _ in model.named_parameters()]
    assert kinds
    assert tied
    assert logits == model(IDS).tolist()
    assert len(within(mapping, model)) == len(shared) + 1
    eventually(lambda: daemon.leases("spawned@v1") == 1)


def test_a_model_follows_after_a_switch(daemon: Daemon) -> None:
    model = trained(0)
    mapping = gpuwm.publish(model, "switched@v1")
    gpuwm.publish(trained(1), "switched@v2", bind=False)
    mapping.switch("switched@v2")
    got = pickle.loads(sent(model.hidden.weight))
    assert isinstance(got, nn.Parameter)
    assert torch.equal(got, trained(1).hidden.weight)
    assert daemon.leases("switched@v2") == 2
    with pytest.raises(guards.WriteError, match=r"hidden\.weight"):
        got.add_(1)


# ---- references --------------------------------------------------------------------------------


def test_a_reference_is_small_and_holds_nothing(daemon: Daemon, name: str) -> None:
    with gpuwm.attach(name) as mapping:
        reference = mapping.ref("v")
        assert mapping["v"].ref() == reference
    eventually(lambda: daemon.leases(name) == 0)
    message = pickle.dumps(reference)  # any pickle
    assert len(message) < 500
    script = "t = value.open(); print(t.tobytes().hex(), 'torch' in sys.modules)"
    assert there(script, message) == f"{np.arange(4).tobytes().hex()} False"
    assert reference.torch().tolist() == [0, 1, 2, 3]
    view = gpuwm.ref(gpuwm.attach(name).torch("w")[2])
    assert view.torch().tolist() == np.arange(12.0, 18).tolist()
    assert view.open().shape == (4, 6)
    with pytest.raises(gpuwm.NoTensor):
        gpuwm.attach(name).ref("x")
    with pytest.raises(gpuwm.Unsupported, match="private"):
        gpuwm.attach(name, writes="private").ref("w")


def test_mappings_and_their_tensors_are_sent(daemon: Daemon, name: str) -> None:
    mapping = gpuwm.attach(name)
    again = pickle.loads(sent(mapping))
    assert again.version.id == mapping.version.id
    assert pickle.loads(sent(mapping["v"])).tobytes() == mapping["v"].tobytes()
    with pytest.raises(TypeError, match="ref"):
        pickle.dumps(mapping["v"])


def test_a_socket_that_was_named_is_used(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = gpuwm.attach(name, client=gpuwm.connect(daemon.socket))
    message = sent(mapping.torch("v"))
    monkeypatch.delenv("GPUWM_SOCKET")
    assert there("print(value.tolist())", message) == "[0, 1, 2, 3]"


@on_host
def test_a_forked_child_attaches_by_itself(daemon: Daemon, name: str) -> None:
    mapping = gpuwm.attach(name)
    tensor = pickle.loads(sent(mapping.torch("v")))
    message = sent(tensor)
    reading, writing = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            writing.send_bytes(sent(tensor) + pickle.dumps(pickle.loads(message).tolist()))
        finally:
            os._exit(0)
    assert reading.poll(30)
    assert reading.recv_bytes() == message + pickle.dumps([0, 1, 2, 3])
    os.waitpid(child, 0)


# ---- never a reference -------------------------------------------------------------------------


def test_checkpoints_hold_bytes(daemon: Daemon, tmp_path: Any) -> None:
    """They are read by a process that has no gpuwmd, and no gpuwm."""
    model = trained()
    gpuwm.publish(model, "saved@v1")
    values = {key: tensor.clone() for key, tensor in trained().state_dict().items()}
    torch.save(model.state_dict(), tmp_path / "state")
    torch.save(model.hidden.weight[2:4], tmp_path / "view")
    (tmp_path / "pickle").write_bytes(pickle.dumps(model.state_dict()))
    from safetensors.torch import save_model

    save_model(model, str(tmp_path / "safetensors"))
    torch.save(values, tmp_path / "wanted")
    assert (tmp_path / "view").stat().st_size < 4096
    run_python(
        "import sys\n"
        "sys.modules['gpuwm'] = None\n"
        "import pathlib, pickle, torch\n"
        "from safetensors.torch import load_file\n"
        "folder = sys.argv[1]\n"
        "wanted = torch.load(folder + '/wanted', map_location='cpu')\n"
        "states = [torch.load(folder + '/state')]\n"
        "states += [pickle.loads(pathlib.Path(folder, 'pickle').read_bytes())]\n"
        "for state in states:\n"
        "    assert state.keys() == wanted.keys()\n"
        "    assert all(torch.equal(state[key].cpu(), wanted[key]) for key in wanted)\n"
        "saved = load_file(folder + '/safetensors')\n"
        "assert all(torch.equal(saved[key], wanted[key]) for key in saved)\n"
        "assert len(saved) == len(wanted) - 1\n"
        "assert torch.equal(torch.load(folder + '/view').cpu(), wanted['hidden.weight'][2:4])\n",
        str(tmp_path),
    )


def test_copies_are_of_bytes(daemon: Daemon) -> None:
    model = trained()
    mapping = gpuwm.publish(model, "copied@v1")
    copied = copy.deepcopy(model)
    assert within(mapping, copied) == []
    plain = copy.deepcopy(mapping.torch("hidden.weight"))
    assert plain.data_ptr() != mapping["hidden.weight"].torch().data_ptr()
    for own in (copied.hidden.weight, plain):
        own.data.add_(1)
        with pytest.raises(gpuwm.Invalid):
            gpuwm.ref(own)
    whole = io.BytesIO()
    torch.save(model, whole)
    whole.seek(0)
    loaded = torch.load(whole, weights_only=False)
    assert isinstance(loaded, Net)
    assert torch.equal(loaded(IDS), model(IDS))
    assert within(mapping, loaded) == []
