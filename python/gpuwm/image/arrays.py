"""Arrays, numbers and dtypes of NumPy as JSON. An array is data: a record has its bytes, and each
process an array of its own."""

from __future__ import annotations

import base64
import math
import sys
from typing import Any

Json = Any
# An array's bytes are text in the record, and the record is at most 32 MiB (record.FILES_BYTES).
ARRAY_BYTES = 1 << 20


def is_array(kind: type) -> bool:
    """Whether objects of the class are arrays and nothing more: a subclass may be a file, or have a
    mask."""
    return kind.__module__ == "numpy" and kind is sys.modules["numpy"].ndarray


def problem(array: Any) -> str | None:
    """Why a record can't have the array."""
    if _name(array.dtype) is None:
        return f"an array of dtype {array.dtype}, whose elements are no plain data"
    if array.nbytes > ARRAY_BYTES:
        return f"an array of {array.nbytes} bytes, and one in an image may have {ARRAY_BYTES}"
    return None


def encoded(array: Any) -> Json:
    """Encodes an array that has no problem."""
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return {
        "array": [
            *(_name(array.dtype), list(array.shape), order, bool(array.flags.writeable)),
            base64.b64encode(array.tobytes(order)).decode(),
        ]
    }


def encoded_plain(value: Any) -> Json | None:
    """Encodes a number of NumPy, or a dtype. None: it is neither, or not plain."""
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.dtype):
        name = _name(value)
        return None if name is None else {"numpy.dtype": name}
    if isinstance(value, numpy.generic) and _name(value.dtype) is not None:
        return {"scalar": encoded(numpy.asarray(value))["array"]}
    return None


def dtype(content: Json) -> Any:
    """Decodes a dtype. Raises ValueError if `_name` can't have given this name, and LookupError if
    this process has no such dtype."""
    if not isinstance(content, str):
        raise ValueError(f"{content!r:.80} is no dtype")
    try:
        import numpy

        found = numpy.dtype(content)
    except (ImportError, TypeError):
        raise LookupError(f"numpy's dtype {content}") from None
    if found.hasobject or found.names or found.subdtype:
        raise ValueError(f"{content!r:.80} is no dtype of plain data")
    return found


def array(content: Json) -> Any:
    """Decodes an array. Raises as `dtype` does."""
    if not (isinstance(content, list) and len(content) == 5 and isinstance(content[1], list)):
        raise ValueError(f"{content!r:.80} is no array")
    name, shape, order, writeable, text = content
    if not all(type(size) is int and size >= 0 for size in shape) or order not in ("C", "F"):
        raise ValueError(f"{content!r:.80} is no array")
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.80} is no text of bytes")
    kind, raw = dtype(name), base64.b64decode(text, validate=True)
    if math.prod(shape) * kind.itemsize != len(raw):
        raise ValueError(f"an array of {kind} and {shape} has {len(raw)} bytes")
    import numpy

    made = numpy.ndarray(shape, kind, bytearray(raw) or None, order=order)
    made.flags.writeable = bool(writeable)
    return made


def scalar(content: Json) -> Any:
    made = array(content)
    if made.ndim:
        raise ValueError(f"{content!r:.80} is no number")
    return made[()]


def _name(kind: Any) -> str | None:
    """The name by which every process knows a dtype. None: its elements are no plain data."""
    numpy = sys.modules["numpy"]
    if kind.hasobject or kind.names or kind.subdtype:
        return None
    for name in (kind.str, kind.name):  # those of ml_dtypes have no str of their own
        try:
            if numpy.dtype(name) == kind:
                return str(name)
        except TypeError:
            continue
    return None
