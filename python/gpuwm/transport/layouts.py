"""What a tensor is, without its bytes: for tensors of torch and arrays of NumPy."""

from __future__ import annotations

import math
import sys
from typing import Any, Literal, NamedTuple, get_args

from .. import errors
from .._c import dtypes, lib

Framework = Literal["torch", "numpy"]
_FRAMEWORKS = get_args(Framework)

# The bytes of an element, by the names that torch and NumPy have for dtypes. Where torch packs
# several elements into a byte, it counts bytes.
_ITEM_BYTES = {row.torch: row.nbytes for row in dtypes.BY_NAME.values() if row.torch}
_ITEM_BYTES |= {"complex128": 16, "complex32": 4}
# Of dtypes that all consumers of DLPack know: the numbers in client.h. A chunk of another dtype is
# exported as bytes.
DLPACK_CODES = {
    row.torch: row.code
    for row in dtypes.BY_NAME.values()
    if row.torch and row.name in dtypes.DLPACK_PLAIN
}
SIZE_MAX = 2**63 - 1
_NO_NUMPY = frozenset(("complex32", "float4_e2m1fn_x2"))


class Layout(NamedTuple):
    """A dense tensor. strides count elements.

    dtype: its name in torch and NumPy ("bfloat16").
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    framework: Framework

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _ITEM_BYTES[self.dtype]

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a chunk for it: a chunk is never empty."""
        return max(self.nbytes, 1)


def dense(dtype: str, shape: tuple[int, ...], framework: Framework) -> Layout:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Layout(dtype, shape, tuple(reversed(strides)), framework)


def wanted(shape: Any, dtype: Any) -> Layout:
    """The layout that a caller asks for. dtype: of torch or NumPy, or its name in one of them, or
    in safetensors."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    checked = tuple(lib.count(size, "shape", SIZE_MAX) for size in sizes)
    name = _name(dtype)
    # Neither the bytes nor a stride may be more than the library can count.
    if math.prod(max(size, 1) for size in checked) * _ITEM_BYTES[name] > SIZE_MAX:
        raise errors.Invalid(f"shape={shape!r}", f"at most {SIZE_MAX:,} bytes")
    return dense(name, checked, _framework(dtype))


def framework_of(value: str | None, otherwise: Framework) -> Framework:
    if value is None:
        return otherwise
    lib.choice(value, "framework", _FRAMEWORKS)
    return value  # type: ignore[return-value]


def is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def known(framework: Framework) -> list[str]:
    return [dtype for dtype in _ITEM_BYTES if is_known(dtype, framework)]


def is_known(dtype: str, framework: Framework) -> bool:
    return dtype in _ITEM_BYTES and not (framework == "numpy" and dtype in _NO_NUMPY)


def _name(dtype: Any) -> str:
    dtypes.check_type(dtype)
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).removeprefix("torch.")
    row = dtypes.BY_NAME.get(name)
    found = (row.torch or name) if row else name
    if found not in _ITEM_BYTES:
        raise errors.Invalid(f"dtype={dtype!r}", "a dtype of torch or NumPy, or its name")
    return found


def _framework(dtype: Any) -> Framework:
    """NumPy if the dtype is NumPy's own."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return "torch"
    is_numpys = isinstance(dtype, numpy.dtype) or (
        isinstance(dtype, type) and issubclass(dtype, numpy.generic)
    )
    return "numpy" if is_numpys else "torch"
