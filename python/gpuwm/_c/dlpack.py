"""Capsules of DLPack, around exports of the C library."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

from . import abi, lib


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


PLAIN = b"dltensor"
VERSIONED = b"dltensor_versioned"
# A capsule keeps a pointer to its name, and may be the last object that the interpreter frees.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(PLAIN))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(VERSIONED))
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def capsules(managed: Iterable[int], name: bytes = PLAIN) -> list[Any]:
    """Capsules that call the exports' deleters unless somebody takes the exports over."""
    end = _capsule_end()
    return [_capsule_new(each, name, end) for each in managed]


def capsule(managed: int, name: bytes = PLAIN) -> Any:
    return capsules((managed,), name)[0]


@functools.cache
def _capsule_end() -> ctypes.c_void_p:
    return ctypes.cast(lib.load()[abi.DLPACK_CAPSULE_END], ctypes.c_void_p)
