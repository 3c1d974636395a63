"""Attaching with conditions: some tensors, private writes, a key."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Daemon, eventually, on_fakecuda, on_host, run_python
from publisher import Given, publish

import gpuwm
from gpuwm._c.selection import Selection

NAMES = ("model.embed.weight", "model.norm.weight", "lm_head.weight")


@pytest.fixture(scope="module")
def version(daemon: Daemon) -> str:
    names = [*NAMES, *(f"model.layers.{n}.{part}.weight" for n in range(21) for part in "ab")]
    names += [f"vision.blocks.{n}.weight" for n in range(3)] + ["odd[1].layers.2.x", "layers.x"]
    array = np.arange(8, dtype=np.float32)
    return daemon.load("subset@v1", {name: array + i for i, name in enumerate(sorted(names))})


def test_layers(version: str) -> None:
    w = gpuwm.attach(version, layers=range(2, 12))
    assert {name.split(".")[2] for name in w if name.startswith("model.layers")} == {
        str(n) for n in range(2, 12)
    }
    assert [name for name in w if not name.startswith("model.")] == [
        "odd[1].layers.2.x",
        "vision.blocks.2.weight",
    ]
    assert len(w) == 22
    assert all(w[name].tobytes() for name in w)


def test_layers_whose_numbers_begin_with_zeros(daemon: Daemon) -> None:
    names = [f"layers.{n:04}.weight" for n in range(12)] + ["layers.3.bias", "head.weight"]
    ref = daemon.load("padded@v1", {name: np.ones(2, np.float32) for name in names})
    w = gpuwm.attach(ref, layers=range(2, 11))
    assert list(w) == [*(f"layers.{n:04}.weight" for n in range(2, 11)), "layers.3.bias"]
    assert all(w[name].tobytes() for name in w)
    with pytest.raises(gpuwm.NotFound, match="has no layer 12$|has no layer 12:"):
        gpuwm.attach(ref, layers=[11, 12])


def test_globs(version: str) -> None:
    assert list(gpuwm.attach(version, glob="*norm*")) == ["model.norm.weight"]
    w = gpuwm.attach(version, layers=[20], glob=["lm_head.*", "model.[e]mbed.*"])
    assert list(w) == [
        "lm_head.weight",
        "model.embed.weight",
        "model.layers.20.a.weight",
        "model.layers.20.b.weight",
    ]
    assert w.nbytes == 4 * 32
    whole = gpuwm.attach(version)
    assert w["lm_head.weight"].tobytes() == whole["lm_head.weight"].tobytes()


def test_what_was_not_attached_says_so(version: str) -> None:
    w = gpuwm.attach(version, layers=[1], glob="lm_head*")
    with pytest.raises(gpuwm.NoTensor, match=r"was not attached: only .* layers \[1\] and lm_head"):
        w["model.norm.weight"]
    assert "model.norm.weight" not in w


def test_what_is_not_there_is_named(daemon: Daemon, version: str) -> None:
    with pytest.raises(gpuwm.NotFound, match="has no layer 21, 30"):
        gpuwm.attach(version, layers=[20, 21, 30])
    with pytest.raises(gpuwm.NotFound, match=r"no tensor matches \"decoder\.\*\""):
        gpuwm.attach(version, glob="decoder.*")
    eventually(lambda: daemon.leases(version) == 0)


def test_many_layers_are_few_globs() -> None:
    names = [f"m.layers.{n}.w" for n in range(80)]
    globs = Selection(range(80)).globs(names)
    assert len(globs) == 8
    assert globs[0] == "m.layers.[0123456789].*"
    assert Selection([7], "a*").globs(names) == ["a*", "m.layers.[7].*"]
    padded = [f"layers.{n:04}.w" for n in range(12)]
    assert Selection(range(12)).globs(padded) == ["layers.000[0123456789].*", "layers.001[01].*"]
    assert Selection().globs(names) == []
    assert str(Selection()) == "all tensors"


@on_host
def test_private_writes_stay_here(version: str) -> None:
    import torch

    w = gpuwm.attach(version, writes="private", glob="lm_head*")
    other = gpuwm.attach(version)
    before = other["lm_head.weight"].tobytes()
    tensor = w.torch("lm_head.weight")
    tensor.fill_(7)
    assert bytes(w["lm_head.weight"].memoryview()) == tensor.numpy().tobytes()
    w["lm_head.weight"].memoryview()[:4] = bytes(4)
    assert float(tensor[0]) == 0
    array = w.numpy("lm_head.weight")
    array[1] = 3
    assert np.from_dlpack(w["lm_head.weight"]).flags.writeable
    assert torch.equal(tensor, torch.tensor([0.0, 3, 7, 7, 7, 7, 7, 7]))
    assert other["lm_head.weight"].tobytes() == before


@on_fakecuda
def test_private_writes_are_for_host(version: str) -> None:
    with pytest.raises(gpuwm.Unsupported):
        gpuwm.attach(version, writes="private")


MAPPED = """
import sys, gpuwm
w = gpuwm.attach(sys.argv[1], glob=sys.argv[2])
with open("/proc/self/maps") as file:
    maps = [line for line in file if "memfd:gpuwm-segment" in line]
print(sum(int(b, 16) - int(a, 16) for a, b in (line.split()[0].split("-") for line in maps)))
"""


@on_host
def test_only_the_segments_that_hold_one_are_mapped(client: gpuwm.Client) -> None:
    size = 3 << 20
    data = bytes(size)
    tensors = [Given(f"t{n}", "U8", (size,), data) for n in range(4)]
    name = publish(client, "pieces@v1", tensors, segment_bytes=2 << 20)
    one, three, every = (int(run_python(MAPPED, name, glob)) for glob in ("t0", "t[012]", "*"))
    assert one < three < every
    assert one < 2 * size


@on_host
def test_a_key_must_be_equal(client: gpuwm.Client, daemon: Daemon) -> None:
    tensor = Given("a", "U8", (4,), b"abcd")
    name = publish(client, "keyed@v1", [tensor], key={"dtype": "bf16", "world": "2"})
    w = gpuwm.attach(name, key={"world": 2})
    assert w.metadata == {"key.dtype": "bf16", "key.world": "2"}
    w.close()
    with pytest.raises(gpuwm.Mismatch, match=r"dtype.*fp16.*bf16|dtype.*bf16.*fp16"):
        gpuwm.attach(name, key={"world": 2, "dtype": "fp16"})
    with pytest.raises(gpuwm.Mismatch, match="engine"):
        gpuwm.attach(name, key={"engine": "x"})
    eventually(lambda: daemon.leases(name) == 0)
