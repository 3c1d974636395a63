"""Attaching: what a mapping tells, and its tensors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import BACKEND, Daemon, on_host

import gpuwm

if TYPE_CHECKING:
    from collections.abc import Iterator

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def version(daemon: Daemon) -> str:
    return daemon.load(
        "told@v1",
        {
            "layers.0.weight": WEIGHT,
            "layers.1.weight": WEIGHT + 1,
            "layers.11.weight": WEIGHT + 11,
            "norm": np.ones(4, np.float16),
            "scalar": np.array(7, np.int64),
            "empty": np.zeros((0, 5), np.float32),
        },
        {"config.json": b'{"a": 1}'},
    )


@pytest.fixture
def w(version: str) -> Iterator[gpuwm.Mapping]:
    with gpuwm.attach(version) as mapping:
        yield mapping


def test_a_mapping_tells_what_it_is(w: gpuwm.Mapping, daemon: Daemon) -> None:
    assert str(w.version) == "told@v1"
    assert w.version.world == 1
    assert w.device == daemon.device
    assert w.nbytes == 3 * 48 + 8 + 8
    assert len(w.version.id) == 32
    assert w.metadata["format"] == "pt"
    assert dict(w.files) == {"config.json": b'{"a": 1}'}
    with pytest.raises(KeyError):
        w.files["other.json"]


def test_tensors_tell_what_they_are(w: gpuwm.Mapping) -> None:
    assert list(w) == sorted(w)
    assert len(w) == 6
    assert "norm" in w
    assert "other" not in w
    tensor = w["layers.0.weight"]
    assert tensor.dtype == "F32"
    assert (tensor.shape, tensor.strides) == ((3, 4), (4, 1))
    assert tensor.nbytes == 48
    assert tensor.tobytes() == WEIGHT.tobytes()
    assert w["scalar"].shape == ()
    assert w["empty"].tobytes() == b""


def test_a_tensor_that_is_not_there_names_what_is_near(w: gpuwm.Mapping) -> None:
    with pytest.raises(KeyError, match=r"told@v1 has no tensor layers\.2\.weight: it has layers\."):
        w["layers.2.weight"]


def test_a_mapping_is_a_mapping(w: gpuwm.Mapping) -> None:
    """As collections.abc has it, and so do `match` and dict()."""
    assert isinstance(w, Mapping)
    assert {name: tensor.nbytes for name, tensor in w.items()} == {
        info.name: info.nbytes for info in w.infos()
    }
    assert [tensor.name for tensor in w.values()] == list(w) == list(w.keys())
    assert w.keys() & {"norm", "other"} == {"norm"}
    assert w.keys() == dict(w).keys()
    norm = w.get("norm")
    assert norm is not None
    assert norm.tobytes() == np.ones(4, np.float16).tobytes()
    assert w.get("other") is None
    assert w.get("other", 5) == 5


def test_mappings_are_compared_as_objects(w: gpuwm.Mapping, version: str) -> None:
    with gpuwm.attach(version) as other:
        assert w == w
        assert w != other
        assert len({w, other}) == 2


def test_a_version_is_not_published_as_it_is(w: gpuwm.Mapping) -> None:
    with pytest.raises(gpuwm.Invalid, match=r"is a version already: publish its state_dict\(\)"):
        gpuwm.publish(w, "told@v2")


@on_host
def test_copies_are_a_mapping(version: str) -> None:
    copies = gpuwm.attach(version, copy=True)
    assert isinstance(copies, Mapping)
    assert [tuple(tensor.shape) for tensor in copies.values()] == [i.shape for i in copies.infos()]
    norm = copies.get("norm")
    assert norm is not None
    assert copies.get("other") is None
    assert len({copies, gpuwm.attach(version, copy=True)}) == 2
    with pytest.raises(gpuwm.Unsupported, match="Copies can't be given a shared tensor"):
        gpuwm.publish(copies, "told@v2")


@on_host
def test_state_dict_is_in_place(w: gpuwm.Mapping) -> None:
    import torch

    state = w.state_dict()
    assert list(state) == list(w)
    assert torch.equal(state["layers.1.weight"], torch.from_numpy(WEIGHT + 1))
    again = w.torch("layers.1.weight")
    assert again.data_ptr() == state["layers.1.weight"].data_ptr()


def test_what_can_not_be_meant(daemon: Daemon, checkpoint: Any) -> None:
    name = checkpoint({"a": np.ones(4, np.float32)})
    with pytest.raises(gpuwm.Invalid, match="rank=-1"):
        gpuwm.attach(name, rank=-1)
    mapping = gpuwm.attach(name)
    for made in (mapping, gpuwm.connect(daemon.socket)):
        for copy_it in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="of this process"):
                copy_it(made)
    no_module: Any = {}
    if BACKEND == "host":
        with pytest.raises(TypeError, match="^model=.*: give a module of torch"):
            mapping.bind(no_module)
