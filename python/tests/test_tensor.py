"""Tensors for others: DLPack, torch, NumPy, buffers; every dtype."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import BACKEND, Daemon, Tensors, by_torch, on_fakecuda, on_gpu, on_host
from publisher import Given, publish

import gpuwm
from gpuwm import _tensor
from gpuwm._c import dtypes
from gpuwm._publish.making import Spec

# 24 bytes that are numbers in each dtype, and 4 elements a byte or more wide.
DATA = bytes(range(1, 25))
# By the elements and bytes of a block.
SHAPES = {
    (2, 1): (6, 8),
    (4, 3): (4, 8),
    (1, 1): (3, 8),
    (1, 2): (3, 4),
    (1, 4): (3, 2),
    (1, 8): (3, 1),
}


@pytest.fixture(scope="module")
def w(daemon: Daemon) -> gpuwm.Mapping:
    tensors: dict[str, Any] = {
        row.name: (
            row.name,
            SHAPES[row.elements, row.nbytes],
            bytes(24) if row.name == "BOOL" else DATA,
        )
        for row in dtypes.BY_NAME.values()
        if row.name not in dtypes.GGUF
    }
    tensors["empty"] = ("F8_E4M3", (0, 3), b"")
    tensors["odd"] = ("F4", (2, 3), b"abc")
    return gpuwm.attach(daemon.load("dtypes@v1", tensors))


@by_torch
@pytest.mark.parametrize("name", [row.name for row in dtypes.BY_NAME.values() if row.torch])
def test_torch_has_the_bytes_in_place(w: gpuwm.Mapping, name: str) -> None:
    given = w[name]
    found = given.torch()
    assert found.dtype == dtypes.torch_dtype(name, "")
    assert bytes(found.untyped_storage().cpu().tolist()) == given.tobytes()  # type: ignore[no-untyped-call]
    assert found.untyped_storage().nbytes() == given.nbytes
    assert found.storage_offset() == 0
    assert not found._is_view()
    assert found.data_ptr() == w.torch(name).data_ptr()
    if name != "F4":
        assert (tuple(found.shape), found.stride()) == (given.shape, given.strides)
    else:
        assert tuple(found.shape) == (6, 4)


@on_host
@pytest.mark.parametrize(
    "name", [n for n, row in dtypes.BY_NAME.items() if row.ml_dtypes or row.numpy]
)
def test_numpy_has_the_bytes_in_place_and_refuses_writes(w: gpuwm.Mapping, name: str) -> None:
    found = w.numpy(name)
    assert found.shape == w[name].shape
    assert found.tobytes() == w[name].tobytes()
    assert not found.flags.writeable
    row = dtypes.BY_NAME[name]
    assert found.dtype == (
        np.dtype(row.numpy) if row.numpy else getattr(ml_dtypes, row.ml_dtypes or "")
    )


@by_torch
def test_a_dtype_that_torch_lacks_is_named(
    w: gpuwm.Mapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "float8_e4m3fn")
    says = rf"tensor F8_E4M3 is F8_E4M3, which torch {torch.__version__.split('+')[0]}"
    with pytest.raises(gpuwm.Unsupported, match=says):
        w.torch("F8_E4M3")
    with pytest.raises(gpuwm.Unsupported, match="F6_E2M3"):
        w.torch("F6_E2M3")
    with pytest.raises(gpuwm.Unsupported, match="F4"):
        w.torch("odd")


@on_host
def test_a_dtype_that_numpy_lacks_is_named(
    w: gpuwm.Mapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(gpuwm.Unsupported, match="tensor BF16 .* install ml_dtypes"):
        w.numpy("BF16")
    with pytest.raises(gpuwm.Unsupported, match="tensor F4 .* no dtype for: take its bytes"):
        w.numpy("F4")


@on_host
def test_consumers_of_dlpack_get_what_they_ask_for(w: gpuwm.Mapping) -> None:
    given = w["F32"]
    assert given.__dlpack_device__() == (_tensor.CPU, 0)
    assert '"dltensor"' in repr(given.__dlpack__())
    assert '"dltensor"' in repr(given.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(given.__dlpack__(max_version=(1, 1)))
    assert given.__dlpack__(dl_device=(1, 0), copy=False, stream=None)
    with pytest.raises(BufferError, match="tensor F32 lies on DLPack device"):
        given.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="exported where it lies"):
        given.__dlpack__(copy=True)


@on_host
def test_torch_and_numpy_consume_it(w: gpuwm.Mapping) -> None:
    by_torch = torch.utils.dlpack.from_dlpack(w["F32"])
    by_numpy = np.from_dlpack(w["F32"])
    assert by_torch.data_ptr() == by_numpy.ctypes.data == w["F32"].torch().data_ptr()
    assert not by_numpy.flags.writeable
    assert by_torch.numpy().tobytes() == DATA


@on_host
def test_empty_tensors_have_their_shape(w: gpuwm.Mapping) -> None:
    assert w.torch("empty").shape == (0, 3)
    assert w.torch("empty").dtype == torch.float8_e4m3fn
    assert w.numpy("empty").shape == (0, 3)
    assert bytes(w["empty"].memoryview()) == b""
    assert w["empty"].torch().nbytes == 0


@on_host
def test_the_buffer_protocol_refuses_writes(w: gpuwm.Mapping) -> None:
    view = w["F6_E2M3"].memoryview()
    assert (view.format, view.readonly, view.nbytes) == ("B", True, 24)
    assert bytes(view) == DATA
    with pytest.raises(TypeError):
        view[0] = 1
    # What Python 3.12 asks for memoryview(tensor).
    typed = w["I16"].__buffer__(0)
    assert (typed.format, typed.shape, typed.readonly) == ("h", (3, 4), True)
    assert typed.tobytes() == DATA
    with pytest.raises(BufferError, match="what tensor BF16 is"):
        w["BF16"].__buffer__(0)


@on_host
def test_asarray_takes_it_in_place(w: gpuwm.Mapping) -> None:
    array = np.asarray(w["F32"])
    assert array.ctypes.data == w.numpy("F32").ctypes.data
    assert np.asarray(w["F32"], np.float64).dtype == np.float64
    assert np.array(w["F32"]).flags.writeable


@by_torch
def test_saving_a_view_saves_only_its_tensor(w: gpuwm.Mapping) -> None:
    file = io.BytesIO()
    torch.save(w.torch("F32")[1:], file)
    assert len(file.getvalue()) < 2000
    file.seek(0)
    assert torch.equal(torch.load(file), w.torch("F32")[1:])


@on_host
def test_a_slice_is_a_view(w: gpuwm.Mapping) -> None:
    part = w.get_slice("F32")
    assert (part.get_shape(), part.get_dtype()) == ([3, 2], "F32")
    assert torch.equal(part[1:, 0], w.torch("F32")[1:, 0])
    assert part[1:].data_ptr() == w.torch("F32").data_ptr() + 8
    assert w.get_slice("F32", "np")[2].tobytes() == DATA[16:]
    with pytest.raises(ValueError, match="framework='tf'"):
        w.get_slice("F32", "tf")


@on_host
@pytest.mark.parametrize("name", sorted(dtypes.GGUF))
def test_a_tensor_of_blocks_is_its_bytes(client: gpuwm.Client, name: str) -> None:
    row = dtypes.BY_NAME[name]
    data = bytes(n % 251 for n in range(3 * 2 * row.nbytes))
    publish(client, f"{name}@v1", [Given("t", name, (3, 2 * row.elements), data)])
    w = gpuwm.attach(f"{name}@v1")
    t = w["t"]
    assert (str(t.dtype), t.shape, t.nbytes) == (name, (3, 2 * row.elements), len(data))
    assert (t.strides, t.is_contiguous()) == ((2 * row.elements, 1), True)
    view = t.memoryview()
    assert (view.format, view.readonly, bytes(view)) == ("B", True, data)
    assert t.tobytes() == data
    assert w.exports == 1
    del view
    assert w.exports == 0
    w.verify()
    assert Spec("t", name, t.shape).nbytes == len(data)
    assert t.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=f"tensor t is {name} .* has no type for: view_bytes"):
        t.__dlpack__()
    assert bytes(np.from_dlpack(t.view_bytes())) == data
    with pytest.raises(gpuwm.Unsupported, match=f"t is {name}, which torch .* take its bytes"):
        t.torch()
    with pytest.raises(gpuwm.Unsupported, match=f"t is {name}, which torch .* take its bytes"):
        w.state_dict()
    with pytest.raises(gpuwm.Unsupported, match=f"t is {name}, which NumPy .* take its bytes"):
        t.numpy()
    with pytest.raises(BufferError, match="can't say what tensor t is"):
        t.__buffer__(0)
    assert w.exports == 0


@on_host
def test_blocks_that_no_row_has_are_refused(client: gpuwm.Client) -> None:
    with pytest.raises(gpuwm.Invalid, match="t is Q4_K: its last dimension of 255"):
        publish(client, "odd@v1", [Given("t", "Q4_K", (2, 255), b"")])


@on_host
def test_tied_and_strided_tensors(client: gpuwm.Client) -> None:
    publish(
        client,
        "tied@v1",
        [
            Given("a", "F32", (2, 3), DATA),
            Given("b", "F32", (2, 3), b"", tied_to="a"),
            Given("c", "F32", (2, 3), DATA, strides=(1, 2)),
            Given("d", "F32", (2, 3), b"", tied_to="a"),
        ],
    )
    w = gpuwm.attach("tied@v1")
    tied = {info.name: info.tied for info in w.infos()}
    assert tied == {"a": None, "b": "a", "c": None, "d": "a"}
    assert w.nbytes == 48
    digests = w.digests()
    assert list(digests) == ["a", "b", "c", "d"]
    assert digests["a"] == digests["b"] == digests["d"]
    assert digests["c"] == digests["a"]  # of the bytes, whatever the strides
    state = w.state_dict()
    assert list(state) == ["a", "b", "c", "d"]
    assert state["a"] is state["b"] is state["d"]
    without = gpuwm.attach("tied@v1", glob=["b", "d"]).state_dict()
    assert list(without) == ["b", "d"]
    assert without["b"] is without["d"]
    assert state["c"].stride() == (1, 2)
    assert not w["c"].is_contiguous()
    assert w.numpy("c").strides == (4, 8)
    assert torch.equal(state["c"], state["a"].reshape(-1).reshape(3, 2).t())
    with pytest.raises(BufferError):
        w["c"].__buffer__(0)
    copies = w.state_dict(copy=True)
    assert copies["a"] is copies["b"]
    assert copies["c"].stride() == (1, 2)
    assert copies["a"].data_ptr() != state["a"].data_ptr()


@on_host
def test_cuda_array_interface_is_for_gpus(w: gpuwm.Mapping) -> None:
    assert not hasattr(w["F32"], "__cuda_array_interface__")


@on_gpu
def test_a_tensor_on_a_gpu(w: gpuwm.Mapping) -> None:
    given = w["F32"]
    assert given.__dlpack_device__() == (_tensor.CUDA, 0)
    interface = given.__cuda_array_interface__
    address, read_only = interface["data"]
    assert read_only
    assert address % 256 == 0
    del interface["data"]
    assert interface == {
        "shape": (3, 2),
        "typestr": "<f4",
        "strides": (8, 4),
        "stream": None,
        "version": 3,
    }
    assert w["U8"].__cuda_array_interface__["typestr"] == "|u1"
    assert w["BOOL"].__cuda_array_interface__["typestr"] == "|b1"
    assert not hasattr(w["BF16"], "__cuda_array_interface__")
    assert given.tobytes() == DATA


@on_gpu
def test_an_address_that_was_told_keeps_the_memory(w: gpuwm.Mapping) -> None:
    before = w.exports
    given = w["F32"]
    assert given.__cuda_array_interface__ == given.__cuda_array_interface__
    assert w.exports == before + 1
    with pytest.raises(gpuwm.Busy, match="1 tensor"):
        w.close()
    del given
    assert w.exports == before


@pytest.mark.skipif(BACKEND != "cuda", reason="needs a GPU")
def test_consumers_on_a_gpu(w: gpuwm.Mapping) -> None:
    given = w["F32"]
    by_torch = torch.utils.dlpack.from_dlpack(given)
    assert by_torch.device.type == "cuda"
    assert by_torch.data_ptr() == given.torch().data_ptr()
    assert by_torch.cpu().numpy().tobytes() == DATA
    with pytest.raises(TypeError, match="read only"):  # torch's word on __cuda_array_interface__
        torch.as_tensor(given, device="cuda")
    cupy = pytest.importorskip("cupy")
    array = cupy.asarray(given)
    assert array.data.ptr == given.torch().data_ptr()
    assert cupy.asnumpy(array).tobytes() == DATA


@on_fakecuda
def test_what_can_not_reach_a_gpu_says_so(w: gpuwm.Mapping) -> None:
    with pytest.raises(gpuwm.Unsupported, match="tensor F32 lies on GPU-.* has no CUDA here"):
        w.torch("F32")
    with pytest.raises(gpuwm.Unsupported, match="where the CPU can't read"):
        w.numpy("F32")
    with pytest.raises(BufferError):
        w["F32"].__dlpack__(dl_device=(1, 0))


def test_an_export_that_nobody_takes_is_given_back(checkpoint: Callable[[Tensors], str]) -> None:
    mapping = gpuwm.attach(checkpoint({"a": np.ones(4, np.float32)}))
    capsule, versioned = mapping["a"].__dlpack__(), mapping["a"].__dlpack__(max_version=(1, 0))
    assert mapping.exports == 2
    del capsule, versioned
    assert mapping.exports == 0
    mapping.close()


@on_host
def test_without_torch_and_numpy_it_says_so(
    w: gpuwm.Mapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(gpuwm.Unsupported, match="tensor F32 .* there is no torch here: install"):
        w.torch("F32")
    with pytest.raises(gpuwm.Unsupported, match="tensor F32 .* there is no numpy here: install"):
        w.numpy("F32")
    assert bytes(w["F32"].memoryview()) == DATA
