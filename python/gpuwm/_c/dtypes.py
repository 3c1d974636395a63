"""Element types, and their names in safetensors or GGUF, torch and NumPy."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import TYPE_CHECKING, Any

from .. import errors
from . import lib

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True, eq=False, repr=False, slots=True)
class DType:
    """An element type. It equals its name: `tensor.dtype == "BF16"`.

    It is no text: NumPy and JAX read an attribute `dtype` as one of their own, and "U8" is their
    name of a text of 8 characters.
    """

    code: int  # the number in client.h
    name: str  # the name in safetensors, or in GGUF
    elements: int  # of a block: the fewest that have whole bytes
    nbytes: int  # of a block
    torch: str | None  # the attribute of torch; None: torch has no such dtype
    numpy: str | None  # NumPy's own dtype; None: see ml_dtypes
    ml_dtypes: str | None  # the attribute of the package ml_dtypes

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        return self.name == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<gpuwm.DType {self.name}>"

    @property
    def __numpy_dtype__(self) -> Any:
        """What numpy.dtype() makes of it, from NumPy 2.4. It exists only if NumPy, or ml_dtypes,
        has the dtype."""
        found = numpy_has(self.name)
        if found is None:
            raise AttributeError(f"NumPy has no dtype {self.name}")
        return found


_SAFETENSORS = (
    DType(1, "BOOL", 1, 1, "bool", "?", None),
    DType(2, "F4", 2, 1, "float4_e2m1fn_x2", None, None),
    DType(3, "F6_E2M3", 4, 3, None, None, None),
    DType(4, "F6_E3M2", 4, 3, None, None, None),
    DType(5, "U8", 1, 1, "uint8", "u1", None),
    DType(6, "I8", 1, 1, "int8", "i1", None),
    DType(7, "F8_E5M2", 1, 1, "float8_e5m2", None, "float8_e5m2"),
    DType(8, "F8_E4M3", 1, 1, "float8_e4m3fn", None, "float8_e4m3fn"),
    DType(9, "F8_E8M0", 1, 1, "float8_e8m0fnu", None, "float8_e8m0fnu"),
    DType(10, "F8_E4M3FNUZ", 1, 1, "float8_e4m3fnuz", None, "float8_e4m3fnuz"),
    DType(11, "F8_E5M2FNUZ", 1, 1, "float8_e5m2fnuz", None, "float8_e5m2fnuz"),
    DType(12, "I16", 1, 2, "int16", "i2", None),
    DType(13, "U16", 1, 2, "uint16", "u2", None),
    DType(14, "F16", 1, 2, "float16", "f2", None),
    DType(15, "BF16", 1, 2, "bfloat16", None, "bfloat16"),
    DType(16, "I32", 1, 4, "int32", "i4", None),
    DType(17, "U32", 1, 4, "uint32", "u4", None),
    DType(18, "F32", 1, 4, "float32", "f4", None),
    DType(19, "C64", 1, 8, "complex64", "c8", None),
    DType(20, "F64", 1, 8, "float64", "f8", None),
    DType(21, "I64", 1, 8, "int64", "i8", None),
    DType(22, "U64", 1, 8, "uint64", "u8", None),
)
# A block has scales for its elements, which are neighbours in a row. torch, NumPy and DLPack lack
# these dtypes.
_GGUF = (
    DType(23, "Q4_0", 32, 18, None, None, None),
    DType(24, "Q4_1", 32, 20, None, None, None),
    DType(25, "Q5_0", 32, 22, None, None, None),
    DType(26, "Q5_1", 32, 24, None, None, None),
    DType(27, "Q8_0", 32, 34, None, None, None),
    DType(28, "Q2_K", 256, 84, None, None, None),
    DType(29, "Q3_K", 256, 110, None, None, None),
    DType(30, "Q4_K", 256, 144, None, None, None),
    DType(31, "Q5_K", 256, 176, None, None, None),
    DType(32, "Q6_K", 256, 210, None, None, None),
)
_ROWS = _SAFETENSORS + _GGUF
BY_CODE = {row.code: row for row in _ROWS}
BY_NAME = {row.name: row for row in _ROWS}

# Plain floating-point numbers, by the names that torch and NumPy have for them. `publish` casts
# from and to these. Smaller dtypes are useful only with the scales of the quantisation that made
# them.
FLOATS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}

# The names of GGUF's block types.
GGUF = frozenset(row.name for row in _GGUF)

# What all consumers of DLPack know. In capsules without a version, the other dtypes of safetensors
# are bytes: only this package takes such a capsule, and views the bytes.
DLPACK_PLAIN = frozenset(row.name for row in _ROWS if row.numpy is not None or row.name == "BF16")


def of(code: int) -> DType:
    """The row for a code of client.h. Raises Unsupported if this package does not know the code."""
    try:
        return BY_CODE[code]
    except KeyError:
        raise errors.Unsupported(
            f"this gpuwm knows no dtype {code}", "install a newer package"
        ) from None


def check_type(dtype: Any) -> None:
    """Raises TypeError if the value is neither a dtype of torch or NumPy nor a text."""
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    is_one = isinstance(dtype, str | type) or (
        (torch is not None and isinstance(dtype, torch.dtype))
        or (numpy is not None and isinstance(dtype, numpy.dtype))
    )
    if not is_one:
        raise lib.wrong("dtype", dtype, "a dtype of torch or NumPy, or its name")


def float_of(dtype: Any) -> str:
    """The safetensors name of torch.bfloat16, ml_dtypes.bfloat16 or "bfloat16". Raises Invalid if
    the dtype is not one of FLOATS, and TypeError."""
    check_type(dtype)
    name = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    if name not in FLOATS:
        raise errors.Invalid(
            f"dtype={dtype!r} is nothing to cast to", f"one of {', '.join(FLOATS)}"
        )
    return FLOATS[name]


def need(name: str, tensor: str) -> None:
    """Raises Unsupported if the package `name` (torch or numpy), which `tensor` is wanted for, is
    not installed."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise errors.Unsupported(
            f"tensor {tensor} can't be a {name} tensor: there is no {name} here",
            f"install {name}; memoryview() (host) and tobytes() need nothing",
        ) from None


def torch_dtype(name: str, tensor: str) -> torch.dtype:
    """torch's dtype for "BF16". Raises Unsupported, and names the tensor, if this torch has
    none."""
    import torch

    attribute = BY_NAME[name].torch
    found = getattr(torch, attribute, None) if attribute else None
    if not isinstance(found, torch.dtype):
        newer = "" if name in GGUF else ", or a torch that knows it"
        raise errors.Unsupported(
            f"tensor {tensor} is {name}, which torch {torch.__version__} has no dtype for",
            f"take its bytes: mapping[name].tobytes(){newer}",
        )
    return found


def numpy_dtype(name: str, tensor: str) -> Any:
    """NumPy's dtype for "F32", or that of ml_dtypes for "BF16". Raises Unsupported if there is
    none."""
    import numpy

    found = numpy_has(name)
    if found is None:
        remedy = "install ml_dtypes, or take" if BY_NAME[name].ml_dtypes else "take"
        raise errors.Unsupported(
            f"tensor {tensor} is {name}, which NumPy {numpy.__version__} has no dtype for",
            f"{remedy} its bytes: mapping[name].tobytes()",
        )
    return found


def numpy_has(name: str) -> Any:
    """NumPy's dtype for "F32", or that of ml_dtypes for "BF16". Returns None if there is none."""
    import numpy

    row = BY_NAME[name]
    found = row.numpy or (_of_ml_dtypes(row.ml_dtypes) if row.ml_dtypes else None)
    return None if found is None else numpy.dtype(found)


def _of_ml_dtypes(attribute: str) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return getattr(ml_dtypes, attribute, None)
