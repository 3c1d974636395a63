"""The structures and functions of libgpuwm-client, as include/gpuwm/region.h declares them."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)

POOL, QUEUE, BLOCKS, SCRATCH = range(4)
WRITERS_ONE, WRITERS_MANY = range(2)
OWNER_PROCESS, OWNER_UID = range(2)
WRITE, OWN, LOOK = 1, 2, 4
SLOTS = 26
CHUNKS_MAX = 4096
OTHERS_MAX = 15
ITEMS_MAX = 65536
ITEM_BYTES_MAX = 1 << 20


class RegionOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("name", c_char_p),
        ("device", c_char_p),
        ("kind", c_int),
        ("writers", c_int),
        ("owner", c_int),
        ("bytes", c_uint64),
        ("chunks", c_uint32),
        ("items", c_uint32),
        ("item_bytes", c_uint32),
        ("ttl_ms", c_uint64),
        ("blocks", c_uint32),
        ("block_bytes", c_uint64),
        ("clear", c_bool),
        ("wait_ms", c_int64),
    )


class RegionInfo(ctypes.Structure):
    _fields_ = (
        ("id", c_char_p),
        ("name", c_char_p),
        ("device", c_char_p),
        ("kind", c_int),
        ("writers", c_int),
        ("owner", c_int),
        ("bytes", c_uint64),
        ("chunks", c_uint32),
        ("items", c_uint32),
        ("item_bytes", c_uint32),
        ("blocks", c_uint32),
        ("block_bytes", c_uint64),
        ("clear", c_bool),
        ("slot", c_uint),
        ("writes", c_bool),
        ("owns", c_bool),
    )


class PoolFigures(ctypes.Structure):
    _fields_ = (
        ("used", c_uint64),
        ("free", c_uint64),
        ("largest_free", c_uint64),
        ("chunks", c_uint32),
        ("waiting", c_uint32),
    )


class Token(ctypes.Structure):
    _fields_ = (
        ("region", c_ubyte * 16),
        ("generation", c_uint64),
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("chunk", c_uint32),
        ("writer", c_uint32),
    )


class Readers(ctypes.Structure):
    _fields_ = (("named", c_uint32), ("others", c_uint32))


class ChunkView(ctypes.Structure):
    _fields_ = (
        ("offset", c_uint64),
        ("dtype", c_uint),
        ("ndim", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("strides", POINTER(c_int64)),
    )


class Message(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("bytes", c_uint32),
        ("chunk_count", c_uint32),
        ("chunks", c_void_p),
        ("tokens", c_void_p),
    )


class ChunksWish(ctypes.Structure):
    _fields_ = (("bytes", POINTER(c_uint64)), ("count", c_size_t), ("wait_ms", c_int64))


ChunksFunction = ctypes.CFUNCTYPE(None, POINTER(c_void_p), c_int, c_void_p)

_HANDLE = c_void_p
_HANDLE_OUT = POINTER(c_void_p)
_STREAM = c_void_p
PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "gpuwm_region_create": (c_int, (_HANDLE, POINTER(RegionOptions), _HANDLE_OUT)),
    "gpuwm_region_open": (c_int, (_HANDLE, c_char_p, c_uint, c_int64, _HANDLE_OUT)),
    "gpuwm_region_close": (c_int, (_HANDLE,)),
    "gpuwm_region_remove": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_region_info": (None, (_HANDLE, POINTER(RegionInfo))),
    "gpuwm_region_address": (c_void_p, (_HANDLE,)),
    "gpuwm_region_reach": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_region_check": (c_int, (_HANDLE,)),
    "gpuwm_pool_figures": (c_int, (_HANDLE, POINTER(PoolFigures))),
    "gpuwm_chunk_alloc": (c_int, (_HANDLE, c_uint64, c_int64, _HANDLE_OUT)),
    "gpuwm_chunks_alloc": (
        c_int,
        (_HANDLE, POINTER(c_uint64), c_size_t, c_int64, _HANDLE_OUT),
    ),
    "gpuwm_chunks_alloc_later": (
        c_int,
        (_HANDLE, POINTER(ChunksWish), ChunksFunction, c_void_p, POINTER(c_uint64)),
    ),
    "gpuwm_chunks_alloc_cancel": (c_int, (_HANDLE, c_uint64)),
    "gpuwm_pool_drain": (c_int, (_HANDLE, c_int64)),
    "gpuwm_chunk_address": (c_void_p, (_HANDLE,)),
    "gpuwm_chunk_bytes": (c_uint64, (_HANDLE,)),
    "gpuwm_chunk_offer": (c_int, (_HANDLE, POINTER(Readers), POINTER(Token))),
    "gpuwm_chunk_offer_in_stream": (
        c_int,
        (_HANDLE, POINTER(Readers), _STREAM, POINTER(Token)),
    ),
    "gpuwm_chunk_discard": (c_int, (_HANDLE,)),
    "gpuwm_token_finished": (c_int, (_HANDLE, POINTER(Token), c_int64)),
    "gpuwm_token_withdraw": (c_int, (_HANDLE, POINTER(Token))),
    "gpuwm_chunk_take": (c_int, (_HANDLE, POINTER(Token), c_int64, _HANDLE_OUT)),
    "gpuwm_chunk_take_in_stream": (c_int, (_HANDLE, POINTER(Token), _STREAM, _HANDLE_OUT)),
    "gpuwm_chunk_finish": (c_int, (_HANDLE,)),
    "gpuwm_chunk_finish_in_stream": (c_int, (_HANDLE, _STREAM)),
    "gpuwm_chunk_dlpack": (c_int, (_HANDLE, POINTER(ChunkView), _HANDLE_OUT)),
    "gpuwm_queue_put": (
        c_int,
        (_HANDLE, c_char_p, c_uint32, c_char_p, c_uint32, c_int64),  # the tokens as bytes
    ),
    "gpuwm_queue_get": (
        c_int,
        (_HANDLE, c_int64, POINTER(c_char_p), c_size_t, POINTER(POINTER(Message)), c_char_p),
    ),
    "gpuwm_message_free": (None, (POINTER(Message),)),
    "gpuwm_chunk_wait": (c_int, (_HANDLE, c_int64)),
    "gpuwm_chunk_wait_in_stream": (c_int, (_HANDLE, _STREAM)),
    "gpuwm_queue_length": (c_int, (_HANDLE, POINTER(c_uint64))),
    "gpuwm_queue_shut": (c_int, (_HANDLE,)),
}
