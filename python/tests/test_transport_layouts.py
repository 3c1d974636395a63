"""What a tensor or array becomes in a chunk: its dtype, shape and strides, and its bytes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import gpuwm
from gpuwm.transport import frameworks, layouts, of_numpy, of_torch

BASE = torch.arange(48.0).reshape(2, 4, 6)
TENSORS = {
    "dense": BASE,
    "no dimensions": torch.tensor(5),
    "empty": torch.empty(0, 4),
    "permuted": BASE.permute(2, 0, 1),
    "channels last": torch.arange(48.0).reshape(1, 2, 4, 6).to(memory_format=torch.channels_last),
    "with gaps": BASE[:, ::2, 1:3],
    "expanded": torch.arange(4).expand(3, 4),
    "conjugated": torch.view_as_complex(BASE.reshape(6, 4, 2)).conj(),
    "bool": torch.tensor([True, False]),
    "bfloat16": torch.arange(4).bfloat16(),
    "fp8": torch.arange(4).to(torch.float8_e4m3fn),
    "complex128": torch.arange(4).to(torch.complex128),
    "uint16": torch.arange(4).to(torch.uint16),
    "parameter": nn.Parameter(torch.ones(2, 3)),
    "transposed": BASE.mT,
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=list(TENSORS))
def test_bytes_and_layout_say_all_of_a_tensor(tensor: torch.Tensor) -> None:
    layout = of_torch.layout(tensor)
    assert layout is not None
    assert layout.nbytes == tensor.numel() * tensor.element_size()
    again = of_torch.from_bytes(of_torch.to_bytes(tensor, layout), layout)
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
    assert tuple(again.stride()) == layout.strides
    assert torch.equal(again.to(torch.complex128), tensor.detach().to(torch.complex128))


def test_a_permutation_keeps_its_strides_and_gaps_are_dropped() -> None:
    permuted, gaps = of_torch.layout(BASE.permute(2, 0, 1)), of_torch.layout(BASE[:, ::2])
    assert permuted is not None
    assert permuted.strides == BASE.permute(2, 0, 1).stride()
    assert gaps is not None
    assert gaps.strides == (12, 6, 1)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, 2).to_sparse(),
        torch.empty(2, device="meta"),
    ],
    ids=["sparse", "meta"],
)
def test_what_is_not_plain_data_has_no_layout(tensor: torch.Tensor) -> None:
    assert of_torch.layout(tensor) is None


GRID = np.arange(48.0).reshape(2, 4, 6)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "dense": GRID,
    "no dimensions": np.array(5),
    "empty": np.empty((0, 4)),
    "Fortran's": np.asfortranarray(GRID),
    "with gaps": GRID[:, ::2, 1:3],
    "backwards": GRID[::-1],
    "swapped": GRID.astype(">f8"),
    "bool": np.array([True, False]),
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    "complex128": GRID.astype(np.complex128),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=list(ARRAYS))
def test_bytes_and_layout_say_all_of_an_array(array: np.ndarray[Any, Any]) -> None:
    layout = of_numpy.layout(array)
    assert layout is not None
    assert layout.nbytes == array.nbytes
    memory = memoryview(bytearray(layout.chunk_bytes))
    of_numpy.fill(of_numpy.place(memory, layout), array)
    again = of_numpy.place(memory.toreadonly(), layout)
    assert again.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(again, array)
    assert not again.flags.writeable
    copied = of_numpy.copied(again)
    assert copied.strides == again.strides or copied.size == 0
    assert copied.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}], object),
        np.array(["text"]),
        np.array(["2026-01-01"], "M8[D]"),
        np.zeros(2, [("a", "f4"), ("b", "i4")]),
    ],
)
def test_arrays_that_are_no_numbers_have_no_layout(array: np.ndarray[Any, Any]) -> None:
    assert frameworks.layout_of(array) is None


def test_subclasses_and_other_values_have_no_layout() -> None:
    for value in (
        None,
        5,
        "x",
        b"x",
        [1.0],
        np.float32(1),
        np.ma.masked_array([1, 2], [False, True]),
    ):
        assert frameworks.layout_of(value) is None


@pytest.mark.parametrize(
    ("dtype", "name", "framework"),
    [
        (torch.bfloat16, "bfloat16", "torch"),
        (np.float32, "float32", "numpy"),
        (np.dtype("i8"), "int64", "numpy"),
        ("BF16", "bfloat16", "torch"),
        ("float32", "float32", "torch"),
        ("F32", "float32", "torch"),
    ],
)
def test_dtypes_have_many_names(dtype: Any, name: str, framework: str) -> None:
    layout = layouts.wanted((2, 3), dtype)
    assert (layout.dtype, layout.framework, layout.strides) == (name, framework, (3, 1))


def test_what_is_no_dtype_or_shape() -> None:
    with pytest.raises(gpuwm.Invalid, match="dtype='nothing'"):
        layouts.wanted(3, "nothing")
    with pytest.raises(gpuwm.Invalid, match="shape=-1"):
        layouts.wanted((2, -1), "float32")
