"""Arrays of NumPy: their layouts, their places in chunks, and copies."""

from __future__ import annotations

from typing import Any

import numpy

from .. import errors
from . import layouts
from .layouts import Layout

Array = numpy.ndarray[Any, Any]


def layout(array: Array) -> Layout | None:
    """None: the dtype has objects, fields or times, or torch's package would not know it."""
    name = array.dtype.name
    if array.dtype.kind in "OSUMm" or array.dtype.names or not layouts.is_known(name, "numpy"):
        return None
    like = numpy.empty_like(array, order="K", subok=False)
    strides = tuple(stride // max(array.itemsize, 1) for stride in like.strides)
    found = layouts.dense(name, array.shape, "numpy")
    return found if array.flags.c_contiguous else found._replace(strides=strides)


def place(data: memoryview, layout: Layout) -> Array:
    """The array in a chunk, of which `data` is the memory."""
    dtype = dtype_of(layout.dtype)
    strides = [stride * dtype.itemsize for stride in layout.strides]
    array: Array = numpy.ndarray(layout.shape, dtype, buffer=data, strides=strides)
    return array


def bytes_in(data: memoryview) -> Array:
    """The array of these bytes, which keeps them."""
    array: Array = numpy.frombuffer(data, numpy.uint8)
    return array


def fill(there: Array, source: Any) -> None:
    numpy.copyto(there, source)


def copied(there: Array) -> Array:
    """A copy with the same strides, in memory of its own."""
    made: Array = there.copy(order="K")
    return made


def dtype_of(name: str) -> numpy.dtype[Any]:
    """Raises Unsupported if NumPy has no such dtype."""
    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        found: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise errors.Unsupported(
            f"NumPy {numpy.__version__} has no dtype {name}", "install ml_dtypes, or use torch"
        ) from None
    return found
