"""Publishes what no file can say: tied and strided tensors."""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

import gpuwm
from gpuwm._c import abi, dtypes, lib


class Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("ndim", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_uint64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("tied_to", ctypes.c_char_p),
    )


class Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("rank", ctypes.c_uint32),
        ("world", ctypes.c_uint32),
        ("join", ctypes.c_char_p),
        ("alias", ctypes.c_char_p),
        ("align", ctypes.c_uint64),
        ("segment_bytes", ctypes.c_uint64),
        ("stepwise", ctypes.c_bool),
        ("key", ctypes.POINTER(abi.KeyField)),
        ("key_count", ctypes.c_size_t),
    )


class Given(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    strides: tuple[int, ...] | None = None
    tied_to: str | None = None


def _spec(given: Given) -> Spec:
    strides = (ctypes.c_int64 * len(given.shape))(*given.strides) if given.strides else None
    return Spec(
        given.name.encode(),
        dtypes.BY_NAME[given.dtype].code,
        len(given.shape),
        (ctypes.c_uint64 * len(given.shape))(*given.shape),
        strides,
        given.tied_to.encode() if given.tied_to else None,
    )


def publish(
    client: gpuwm.Client,
    name: str,
    tensors: list[Given],
    segment_bytes: int = 0,
    key: dict[str, str] | None = None,
) -> str:
    """The name."""
    library = ctypes.CDLL(os.environ["GPUWM_LIBRARY"])
    specs = (Spec * len(tensors))(*map(_spec, tensors))
    fields, count = lib.key_fields(key)
    options = Options(
        ctypes.sizeof(Options),
        name.encode(),
        b"host",
        segment_bytes=segment_bytes,
        key=fields,
        key_count=count,
    )
    out = ctypes.c_void_p()
    handle = ctypes.c_void_p(client.handle)
    spec_count = ctypes.c_size_t(len(tensors))
    lib.check(
        library.gpuwm_publish_begin(
            handle, ctypes.byref(options), specs, spec_count, ctypes.byref(out)
        )
    )
    for position, given in enumerate(tensors):
        if given.tied_to is None:
            lib.check(
                library.gpuwm_publish_write(
                    out,
                    ctypes.c_size_t(position),
                    ctypes.c_uint64(0),
                    given.data,
                    ctypes.c_uint64(len(given.data)),
                )
            )
    version = abi.VersionInfo()
    lib.check(library.gpuwm_publish_commit(out, ctypes.byref(version)))
    return name
