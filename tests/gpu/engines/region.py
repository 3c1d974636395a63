"""The blocks of a region, as its control memory has them, by gpuwm's C library: who is asked here
needs neither torch nor a GPU. Errors of the library are RuntimeError."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

BLOCKS, MANY_WRITERS, OWNER_UID, LOOK, WRITE = 2, 1, 1, 4, 1  # of gpuwm/region.h
FIGURES = ("blocks", "free", "owned", "ready", "held")


class Options(ctypes.Structure):
    """struct gpuwm_region_options"""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("writers", ctypes.c_int),
        ("owner", ctypes.c_int),
        ("bytes", ctypes.c_uint64),
        ("chunks", ctypes.c_uint32),
        ("items", ctypes.c_uint32),
        ("item_bytes", ctypes.c_uint32),
        ("ttl_ms", ctypes.c_uint64),
        ("blocks", ctypes.c_uint32),
        ("block_bytes", ctypes.c_uint64),
        ("clear", ctypes.c_bool),
    )


class Error(ctypes.Structure):
    """The first members of what gpuwm_error returns."""

    _fields_ = (("code", ctypes.c_int), ("name", ctypes.c_char_p), ("message", ctypes.c_char_p))


def library() -> ctypes.CDLL:
    found = ctypes.CDLL(os.environ["GPUWM_LIBRARY"])
    found.gpuwm_close.restype = None
    found.gpuwm_close.argtypes = [ctypes.c_void_p]
    found.gpuwm_region_close.argtypes = [ctypes.c_void_p]
    found.gpuwm_error.restype = ctypes.POINTER(Error)
    return found


def called(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    if getattr(library, name)(*arguments) < 0:
        message = library.gpuwm_error().contents.message or b""
        raise RuntimeError(f"{name}: {message.decode(errors='replace')}")


@contextlib.contextmanager
def connected() -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    """At $GPUWM_SOCKET."""
    lib, client = library(), ctypes.c_void_p()
    called(lib, "gpuwm_connect", None, ctypes.byref(client))
    try:
        yield lib, client
    finally:
        lib.gpuwm_close(client)


def figures(name: str) -> dict[str, int]:
    """How many blocks are in each state."""
    with connected() as (lib, client):
        region, found = ctypes.c_void_p(), (ctypes.c_uint32 * len(FIGURES))()
        no_wait = ctypes.c_int64(0)
        called(lib, "gpuwm_region_open", client, name.encode(), LOOK, no_wait, ctypes.byref(region))
        try:
            called(lib, "gpuwm_blocks_figures", region, ctypes.byref(found))
        finally:
            called(lib, "gpuwm_region_close", region)
    return dict(zip(FIGURES, found, strict=True))


def make(name: str, blocks: int, block_bytes: int) -> None:
    """On host. It stays until it is removed."""
    options = Options(
        size=ctypes.sizeof(Options),
        name=name.encode(),
        device=b"host",
        kind=BLOCKS,
        writers=MANY_WRITERS,
        owner=OWNER_UID,
        blocks=blocks,
        block_bytes=block_bytes,
    )
    with connected() as (lib, client):
        region = ctypes.c_void_p()
        called(lib, "gpuwm_region_create", client, ctypes.byref(options), ctypes.byref(region))
        called(lib, "gpuwm_region_close", region)


def remove(name: str) -> None:
    with connected() as (lib, client):
        called(lib, "gpuwm_region_remove", client, name.encode())
