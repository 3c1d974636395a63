"""Every dtype in every framework: the table of docs/python/dtypes.md, and the remedies of what is
refused.

Reported in public: dmlc/dlpack 156 (fp8 goes through DLPack as int8, and is viewed), safetensors
839 (an empty FP4 tensor; FP4's shape in elements and in pairs), numpy 25306 and 30179
(`numpy.dtype` of an object reads its attribute `dtype`), salesforce/LAVIS 223
(`numpy.issubdtype(tensor.dtype, …)` of a dtype that is not NumPy's).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pathlib
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Daemon, by_torch, on_gpu, on_host
from publisher import Given, publish
from torch.utils.dlpack import from_dlpack

import gpuwm
from gpuwm._c import dtypes

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"  # without it JAX makes 32-bit numbers of 64-bit ones

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "python" / "dtypes.md"
HEADING = "## Every dtype in every framework"
REFUSED = "\N{EN DASH}"
ROWS = [row for row in dtypes.BY_NAME.values() if row.name not in dtypes.GGUF]
FLOATS_OF_8 = [row.name for row in ROWS if row.name.startswith("F8")]
# Whole elements of every dtype.
DATA = bytes(range(1, 49))


def of(package: str, call: Callable[[Any], Callable[[gpuwm.Tensor], Any]]) -> Any:
    """A column of the table: its package, and what it makes of a tensor."""
    return package, lambda tensor: call(importlib.import_module(package))(tensor)


COLUMNS = {
    "`.torch()`": of("torch", lambda _: gpuwm.Tensor.torch),
    "`torch.from_dlpack`": of("torch", lambda module: module.from_dlpack),
    "`numpy.asarray`": of("numpy", lambda module: module.asarray),
    "`numpy.from_dlpack`": of("numpy", lambda module: module.from_dlpack),
    "`jax.numpy.asarray`": of("jax.numpy", lambda module: module.asarray),
    "`jax.dlpack.from_dlpack`": of("jax.dlpack", lambda module: module.from_dlpack),
    "`OrtValue.from_dlpack`": of("onnxruntime", lambda module: module.OrtValue.from_dlpack),
}


@pytest.fixture(scope="module")
def w(daemon: Daemon) -> gpuwm.Mapping:
    tensors: dict[str, Any] = {
        row.name: (
            row.name,
            (2, 24 * row.elements // row.nbytes),
            bytes(48) if row.name == "BOOL" else DATA,
        )
        for row in ROWS
    }
    tensors |= {
        "empty": ("F4", (0, 8), b""),
        "odd": ("F4", (2, 3), b"abc"),
        "ones": ("F8_E4M3", (2,), b"\x38\x40"),
        "scale": ("F8_E8M0", (), b"\x80"),
    }
    return gpuwm.attach(daemon.load("dtypes@v1", tensors))


# ---- the table ---------------------------------------------------------------------------------


def cell(call: Callable[[gpuwm.Tensor], Any], tensor: gpuwm.Tensor) -> str:
    """What a framework makes of a tensor: its dtype, if the bytes are right; or that it refuses."""
    try:
        found = call(tensor)
    except Exception:
        return REFUSED
    if hasattr(found, "data_type"):  # an OrtValue
        assert (found.data_ptr(), found.shape()) == (tensor._address(), list(tensor.shape))
        return str(found.data_type()).removeprefix("tensor(").removesuffix(")")
    plain = found.view(torch.uint8).numpy() if isinstance(found, torch.Tensor) else found
    assert np.asarray(plain).tobytes() == tensor.tobytes()
    assert tuple(found.shape) == (2, *[n // (1 + (tensor.dtype == "F4")) for n in tensor.shape[1:]])
    return str(found.dtype).removeprefix("torch.")


def table(w: gpuwm.Mapping) -> dict[str, list[str]]:
    """The column of each package that is installed."""
    found = {}
    for title, (package, call) in COLUMNS.items():
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            continue
        found[title] = [cell(call, w[row.name]) for row in ROWS]
    return found


def printed() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The table of the document: the release of each package, and its columns."""
    text = DOCS.read_text()
    text = text[text.index(HEADING) :]
    releases = dict(re.findall(r"\b([a-z_]+) (\d+\.\d+\.\d+)", text[: text.index("|")]))
    lines = [line.strip("| ").split(" | ") for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    titles, rows = lines[0], lines[2 : 2 + len(ROWS)]
    assert [row[0] for row in rows] == [f"`{row.name}`" for row in ROWS]
    return releases, {title: [row[i] for row in rows] for i, title in enumerate(titles)}


@on_host
@pytest.mark.skipif(not DOCS.exists(), reason="docs/ is not here")
def test_the_table_is_what_the_frameworks_do(w: gpuwm.Mapping) -> None:
    releases, columns = printed()
    assert list(columns)[1:] == list(COLUMNS)
    for title, found in table(w).items():
        package = COLUMNS[title][0].partition(".")[0]
        if importlib.metadata.version(package).partition("+")[0] == releases[package]:
            assert found == columns[title], title


# ---- DLPack ------------------------------------------------------------------------------------


@on_host
def test_fp8_and_fp4_keep_their_values(w: gpuwm.Mapping) -> None:
    assert from_dlpack(w["ones"]).float().tolist() == [1.0, 2.0]
    assert from_dlpack(w["scale"]).float().item() == 2.0
    pairs = from_dlpack(w["F4"])
    assert (pairs.dtype, pairs.shape) == (torch.float4_e2m1fn_x2, (2, 24))
    assert pairs.data_ptr() == w["F4"].torch().data_ptr()


@on_host
@pytest.mark.parametrize("take", [from_dlpack, gpuwm.Tensor.torch])
def test_an_empty_fp4_tensor_has_its_pairs(w: gpuwm.Mapping, take: Any) -> None:
    found = take(w["empty"])
    assert (found.dtype, tuple(found.shape)) == (torch.float4_e2m1fn_x2, (0, 4))


@pytest.mark.parametrize("name", [*FLOATS_OF_8, "F4"])
def test_a_consumer_without_versions_is_told_what_to_take(w: gpuwm.Mapping, name: str) -> None:
    says = rf"tensor {name} is {name} .*DLPack without a version has no type for: view_bytes\(\)"
    before = w.exports
    for old in (None, (0, 8)):
        with pytest.raises(BufferError, match=says):
            w[name].__dlpack__(max_version=old)
    assert w.exports == before


@pytest.mark.parametrize("name", ["F6_E2M3", "F6_E3M2", "odd"])
def test_what_dlpack_has_no_type_for_is_refused_in_every_version(
    w: gpuwm.Mapping, name: str
) -> None:
    for version in (None, (1, 0), (1, 3)):
        with pytest.raises(BufferError, match=rf"tensor {name} .* has no type for: view_bytes\(\)"):
            w[name].__dlpack__(max_version=version)


def test_blocks_of_gguf_are_refused_in_every_version(client: gpuwm.Client) -> None:
    publish(client, "blocks@v1", [Given("t", "Q4_K", (2, 256), bytes(288))])
    t = gpuwm.attach("blocks@v1")["t"]
    for version in (None, (1, 0)):
        with pytest.raises(BufferError, match=r"tensor t is Q4_K \[2, 256\], which DLPack"):
            t.__dlpack__(max_version=version)


# ---- the bytes ---------------------------------------------------------------------------------


@on_host
@pytest.mark.parametrize("name", [*[row.name for row in ROWS], "odd", "empty", "scale"])
def test_every_framework_takes_the_bytes(w: gpuwm.Mapping, name: str) -> None:
    given = w[name].view_bytes()
    assert len(given) == w[name].nbytes
    arrays = [np.asarray(given), np.from_dlpack(given), from_dlpack(given).numpy()]
    for array in arrays:
        assert array.dtype == np.uint8
        assert array.shape == (len(given),)
        assert array.tobytes() == w[name].tobytes()
    if len(given):
        assert {array.ctypes.data for array in arrays} == {w[name]._address()}
        assert not arrays[0].flags.writeable
        assert not arrays[1].flags.writeable


@on_host
def test_the_bytes_follow_the_protocols(w: gpuwm.Mapping) -> None:
    given = w["F8_E4M3"].view_bytes()
    assert repr(given) == "<gpuwm.Bytes of <gpuwm.Tensor F8_E4M3: F8_E4M3 [2, 24] on host>>"
    assert '"dltensor"' in repr(given.__dlpack__())
    assert '"dltensor_versioned"' in repr(given.__dlpack__(max_version=(1, 0)))
    assert np.array(given, np.int16).dtype == np.int16
    assert np.array(given).flags.writeable
    assert not hasattr(given, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="exported where it lies"):
        given.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="lies on DLPack device"):
        given.__dlpack__(dl_device=(2, 0))


@on_host
def test_jax_follows_the_remedies(w: gpuwm.Mapping) -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(BufferError, match=r"view_bytes\(\)"):
        jax.dlpack.from_dlpack(w["ones"])
    viewed = jax.dlpack.from_dlpack(w["ones"].view_bytes()).view(jax.numpy.float8_e4m3fn)
    for found in (viewed, jax.dlpack.from_dlpack(w.torch("ones")), jax.numpy.array(w["ones"])):
        assert str(found.dtype) == "float8_e4m3fn"
        assert found.astype("float32").tolist() == [1.0, 2.0]


@on_gpu
def test_the_bytes_have_an_address_on_a_gpu(w: gpuwm.Mapping) -> None:
    given = w["F8_E4M3"].view_bytes()
    assert given.__dlpack_device__() == (2, 0)
    assert given.__cuda_array_interface__ == {
        "shape": (48,),
        "typestr": "|u1",
        "data": (w["F8_E4M3"]._address(), True),
        "strides": (1,),
        "stream": None,
        "version": 3,
    }


# ---- the attribute -----------------------------------------------------------------------------


def test_a_dtype_is_its_name_and_no_text(w: gpuwm.Mapping) -> None:
    dtype = w["U8"].dtype
    assert dtype == "U8"
    assert dtype == w["U8"].dtype
    assert dtype not in ("I8", w["I8"].dtype, None, 5)
    assert dtype in {"U8"}
    assert "U8" in {dtype}
    assert (str(dtype), f"{dtype}", dtype.name) == ("U8", "U8", "U8")
    assert repr(dtype) == "<gpuwm.DType U8>"
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    assert not isinstance(dtype, str | tuple)
    assert w.infos()[0].dtype == "BF16"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_numpy_takes_a_dtype_for_the_one_that_it_is(w: gpuwm.Mapping, row: gpuwm.DType) -> None:
    own = dtypes.numpy_has(row.name)
    if own is None:
        for given in (w[row.name], row):
            with pytest.raises((TypeError, ValueError)):
                np.dtype(given)
        return
    assert np.dtype(row) == np.dtype(w[row.name]) == own
    assert np.result_type(w[row.name], np.bool_) == own
    assert np.issubdtype(row, np.unsignedinteger) == (row.name in {"U8", "U16", "U32", "U64"})


@on_host
@pytest.mark.parametrize("row", [row for row in ROWS if dtypes.numpy_has(row.name)], ids=str)
def test_jax_takes_every_dtype_that_numpy_has(w: gpuwm.Mapping, row: gpuwm.DType) -> None:
    jax = pytest.importorskip("jax")
    for make in (jax.numpy.asarray, jax.numpy.array):
        found = make(w[row.name])
        assert (found.dtype, found.shape) == (dtypes.numpy_has(row.name), w[row.name].shape)


# ---- slices ------------------------------------------------------------------------------------


@by_torch
def test_a_slice_of_fp4_counts_no_pairs_as_elements(w: gpuwm.Mapping) -> None:
    part = w.get_slice("F4")
    assert (part.get_shape(), part.get_dtype()) == ([2, 48], "F4")
    assert part[1:].shape == (1, 24)
    assert part[1].data_ptr() == w.torch("F4").data_ptr() + 24
    for index in ((slice(None), slice(0, 4)), (..., 0), ...):
        with pytest.raises(gpuwm.Unsupported, match=r"tensor F4 .* index torch\(\)"):
            part[index]
