"""The structures and functions of libgpuwm-client, as include/gpuwm/blocks.h and scratch.h declare
them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

BLOCKS_MAX = 262_144
NONE = 2**32 - 1  # the number of no block


class BlockKey(ctypes.Structure):
    _fields_ = (("key", c_uint64 * 2), ("check", c_uint64))


class Block(ctypes.Structure):
    _fields_ = (("number", c_uint32), ("generation", c_uint32))


class BlocksFigures(ctypes.Structure):
    _fields_ = (
        ("blocks", c_uint32),
        ("free", c_uint32),
        ("owned", c_uint32),
        ("ready", c_uint32),
        ("held", c_uint32),
    )


KEY_BYTES = ctypes.sizeof(BlockKey)
BLOCK_BYTES = ctypes.sizeof(Block)

_HANDLE = c_void_p
_KEYS = c_char_p  # keys are passed as bytes, where they lie
_BLOCKS = c_void_p  # an array, or a part of one
_STREAM = c_void_p
_COUNT_OUT = POINTER(c_size_t)
PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "gpuwm_blocks_reserve": (c_int, (_HANDLE, _KEYS, c_size_t, c_int64, _BLOCKS, _COUNT_OUT)),
    "gpuwm_blocks_publish": (c_int, (_HANDLE, _BLOCKS, c_size_t)),
    "gpuwm_blocks_publish_in_stream": (c_int, (_HANDLE, _BLOCKS, c_size_t, _STREAM)),
    "gpuwm_blocks_abandon": (c_int, (_HANDLE, _BLOCKS, c_size_t)),
    "gpuwm_blocks_find": (c_int, (_HANDLE, _KEYS, c_size_t, _COUNT_OUT)),
    "gpuwm_blocks_hold": (c_int, (_HANDLE, _KEYS, c_size_t, c_int64, _BLOCKS, _COUNT_OUT)),
    "gpuwm_blocks_hold_these": (c_int, (_HANDLE, _BLOCKS, c_size_t, c_int64)),
    "gpuwm_blocks_release": (c_int, (_HANDLE, _BLOCKS, c_size_t)),
    "gpuwm_blocks_release_in_stream": (c_int, (_HANDLE, _BLOCKS, c_size_t, _STREAM)),
    "gpuwm_blocks_drop": (c_int, (_HANDLE, _KEYS, c_size_t, _COUNT_OUT)),
    "gpuwm_block_key_of": (c_int, (_HANDLE, _BLOCKS, c_void_p)),
    "gpuwm_blocks_figures": (c_int, (_HANDLE, POINTER(BlocksFigures))),
    "gpuwm_scratch_acquire": (c_int, (_HANDLE, c_int64)),
    "gpuwm_scratch_release": (c_int, (_HANDLE,)),
}
