"""The structures and functions of libgpuwm-client, as include/gpuwm/client.h declares them."""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_bool,
    c_char,
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

CONNECT_ADMIN = 1
KICK_LEASE, KICK_PID, KICK_UID = range(3)
VERIFY_JOBS_MAX = 64
FROM_NOW_ON = 2**64 - 1


class ErrorText(ctypes.Structure):
    _fields_ = (
        ("code", c_int),
        ("name", c_char_p),
        ("message", c_char_p),
        ("detail", c_char_p),
    )


class LostLease(ctypes.Structure):
    _fields_ = (
        ("version", c_char_p),
        ("model", c_char_p),
        ("tag", c_char_p),
        ("device", c_char_p),
        ("rank", c_uint32),
        ("error", ErrorText),
        ("revoked", c_bool),
    )


class ConnectOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("socket", c_char_p),
        ("name", c_char_p),
        ("wait_ms", c_int64),
        ("timeout_ms", c_int64),
        ("flags", c_uint),
        ("restart_ms", c_int64),
        ("lost", c_void_p),
        ("lost_data", c_void_p),
    )


class Device(ctypes.Structure):
    _fields_ = (
        ("id", c_char_p),
        ("name", c_char_p),
        ("is_cuda", c_bool),
        ("total", c_uint64),
        ("budget", c_uint64),
        ("granularity", c_uint64),
        ("lost", c_char_p),
    )


class VersionInfo(ctypes.Structure):
    _fields_ = (
        ("id", c_char * 33),
        ("model", c_char * 129),
        ("tag", c_char * 129),
        ("device", c_char * 64),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("generation", c_uint64),
        ("bytes", c_uint64),
        ("segments", c_uint32),
        ("tensors", c_uint64),
        ("layout", c_ubyte * 16),
        ("content", c_ubyte * 16),
    )


class KeyField(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("value", c_char_p))


class AttachOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("device", c_char_p),
        ("rank", c_uint32),
        ("wait_ms", c_int64),
        ("address", c_void_p),
        ("populate", c_bool),
        ("peers", POINTER(c_char_p)),
        ("peer_count", c_size_t),
        ("globs", POINTER(c_char_p)),
        ("glob_count", c_size_t),
        ("private_writes", c_bool),
        ("look", c_bool),
        ("key", POINTER(KeyField)),
        ("key_count", c_size_t),
        ("owner_uids", POINTER(c_uint32)),
        ("owner_uid_count", c_size_t),
        ("owner_operator", c_bool),
        ("announce", c_char_p),
        ("transport", c_int),
        ("room", c_uint64),
    )


class SwitchOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("wait_ms", c_int64),
        ("idle", c_bool),
        ("key", POINTER(KeyField)),
        ("key_count", c_size_t),
    )


class ExchangeOptions(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("idle", c_bool), ("check", c_bool))


class SaveOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("overwrite", c_bool),
        ("shard_bytes", c_uint64),
        ("progress", c_void_p),
        ("user_data", c_void_p),
    )


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_int),
        ("ndim", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("strides", POINTER(c_int64)),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("segment", c_uint32),
        ("offset", c_uint64),
        ("digest", c_ubyte * 16),
    )


class TensorSpec(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_int),
        ("ndim", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("strides", POINTER(c_int64)),
        ("tied_to", c_char_p),
    )


class PublishOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("name", c_char_p),
        ("device", c_char_p),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("join", c_char_p),
        ("alias", c_char_p),
        ("align", c_uint64),
        ("segment_bytes", c_uint64),
        ("stepwise", c_bool),
        ("key", POINTER(KeyField)),
        ("key_count", c_size_t),
        ("owner_uids", POINTER(c_uint32)),
        ("owner_uid_count", c_size_t),
        ("owner_operator", c_bool),
        ("join_uids", POINTER(c_uint32)),
        ("join_gids", POINTER(c_uint32)),
        ("join_uid_count", c_size_t),
        ("join_gid_count", c_size_t),
        ("cached", c_bool),
        ("keep_last", c_uint32),
        ("ttl_ms", c_uint64),
        ("wait_ms", c_int64),
        ("companion_of", c_char_p),
    )


class LoadFile(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("fd", c_int),
    )


class LoadOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("source", c_char_p),
        ("name", c_char_p),
        ("devices", POINTER(c_char_p)),
        ("device_count", c_size_t),
        ("alias", c_char_p),
        ("dry_run", c_bool),
        ("key", POINTER(KeyField)),
        ("key_count", c_size_t),
        ("expect", c_char_p),
        ("retire_old", c_bool),
        ("share_with", c_char_p),
        ("segment_bytes", c_uint64),
        ("ranks", c_uint32),
        ("cut", c_char_p),
        ("fingerprint", c_char_p),
        ("files", POINTER(LoadFile)),
        ("file_count", c_size_t),
        ("only", POINTER(c_char_p)),
        ("only_count", c_size_t),
        ("companion_of", c_char_p),
    )


class SwapOptions(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("model", c_char_p),
        ("alias", c_char_p),
        ("to", c_char_p),
        ("expect", c_char_p),
        ("retire_old", c_bool),
    )


class Event(ctypes.Structure):
    _fields_ = (
        ("seq", c_uint64),
        ("kind", c_char_p),
        ("model", c_char_p),
        ("tag", c_char_p),
        ("alias", c_char_p),
        ("version", c_char_p),
        ("json", c_char_p),
    )


EventFunction = ctypes.CFUNCTYPE(None, POINTER(Event), c_void_p)

# The results and parameters of each function. Handles are c_void_p. A handle that a function
# returned is never 0.
_HANDLE = c_void_p
_HANDLE_OUT = POINTER(c_void_p)
PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "gpuwm_error": (POINTER(ErrorText), ()),
    "gpuwm_connect": (c_int, (POINTER(ConnectOptions), _HANDLE_OUT)),
    "gpuwm_close": (c_void_p, (_HANDLE,)),
    "gpuwm_ping": (c_int, (_HANDLE, POINTER(c_uint64))),
    "gpuwm_instance": (c_char_p, (_HANDLE,)),
    "gpuwm_ledger": (c_char_p, (_HANDLE,)),
    "gpuwm_epoch": (c_uint64, (_HANDLE,)),
    "gpuwm_devices": (c_size_t, (_HANDLE, POINTER(POINTER(Device)))),
    "gpuwm_dtype_name": (c_char_p, (c_uint,)),
    "gpuwm_dtype_bits": (c_uint, (c_uint,)),
    "gpuwm_dtype_block": (c_int, (c_uint, POINTER(c_uint32), POINTER(c_uint32))),
    "gpuwm_attach": (c_int, (_HANDLE, c_char_p, POINTER(AttachOptions), _HANDLE_OUT)),
    "gpuwm_get_handles": (c_int, (_HANDLE, c_char_p, POINTER(AttachOptions), _HANDLE_OUT)),
    "gpuwm_handles_release": (c_int, (_HANDLE,)),
    "gpuwm_handles_version": (POINTER(VersionInfo), (_HANDLE,)),
    "gpuwm_handles_tensor_count": (c_uint64, (_HANDLE,)),
    "gpuwm_handles_tensor_at": (c_int, (_HANDLE, c_uint64, c_void_p)),
    "gpuwm_handles_check": (c_int, (_HANDLE,)),
    "gpuwm_handles_ipc_segment": (c_int, (_HANDLE, c_uint32, c_void_p, POINTER(c_uint64))),
    "gpuwm_handles_ipc_event": (c_int, (_HANDLE, c_void_p, POINTER(c_uint64))),
    "gpuwm_detach": (c_int, (_HANDLE,)),
    "gpuwm_drop": (None, (_HANDLE,)),
    "gpuwm_mapping_check": (c_int, (_HANDLE,)),
    "gpuwm_mapping_revoked": (c_bool, (_HANDLE,)),
    "gpuwm_mapping_exports": (c_uint64, (_HANDLE,)),
    "gpuwm_mapping_version": (POINTER(VersionInfo), (_HANDLE,)),
    "gpuwm_announce": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_mapping_address": (c_void_p, (_HANDLE, POINTER(c_uint64))),
    "gpuwm_park": (c_int, (_HANDLE, c_uint64)),
    "gpuwm_unpark": (c_int, (_HANDLE, c_uint64, c_int64)),
    "gpuwm_unpark_together": (c_int, (_HANDLE, c_char_p, c_uint32, c_uint64, c_int64)),
    "gpuwm_mapping_parked": (c_bool, (_HANDLE,)),
    "gpuwm_mapping_room": (c_uint64, (_HANDLE,)),
    "gpuwm_switch": (c_int, (_HANDLE, c_char_p, POINTER(SwitchOptions))),
    "gpuwm_exchange": (c_int, (_HANDLE, _HANDLE, POINTER(ExchangeOptions))),
    "gpuwm_tensor_count": (c_uint64, (_HANDLE,)),
    "gpuwm_tensors": (c_int, (_HANDLE, POINTER(Tensor))),
    "gpuwm_tensor_read": (c_int, (_HANDLE, c_void_p, c_uint64, c_void_p, c_uint64)),
    "gpuwm_tensors_verify": (c_int, (_HANDLE, POINTER(c_char_p), c_size_t)),
    "gpuwm_save": (c_int, (POINTER(c_void_p), c_size_t, c_char_p, POINTER(SaveOptions))),
    "gpuwm_metadata_at": (c_int, (_HANDLE, c_uint32, POINTER(c_char_p), POINTER(c_char_p))),
    "gpuwm_file": (c_void_p, (_HANDLE, c_char_p, POINTER(c_uint32))),
    "gpuwm_file_at": (
        c_int,
        (_HANDLE, c_uint32, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_uint32)),
    ),
    "gpuwm_dlpack": (c_int, (_HANDLE, c_void_p, POINTER(c_void_p))),
    "gpuwm_dlpack_many": (c_int, (_HANDLE, POINTER(c_uint64), c_size_t, POINTER(c_void_p))),
    "gpuwm_dlpack_versioned": (c_int, (_HANDLE, c_void_p, POINTER(c_void_p))),
    "gpuwm_name_faults": (None, (c_char_p,)),
    "gpuwm_reserve": (c_int, (c_char_p, c_uint64, _HANDLE_OUT)),
    "gpuwm_reservation_address": (c_void_p, (_HANDLE, POINTER(c_uint64))),
    "gpuwm_vacate": (c_int, (_HANDLE,)),
    "gpuwm_occupy": (c_int, (_HANDLE, c_int64)),
    "gpuwm_reservation_free": (c_int, (_HANDLE,)),
    "gpuwm_capture_begin": (None, ()),
    "gpuwm_capture_end": (None, ()),
    "gpuwm_claim": (c_int, (_HANDLE, c_char_p, POINTER(AttachOptions), _HANDLE_OUT)),
    "gpuwm_claim_give_up": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_publish_begin": (
        c_int,
        (_HANDLE, POINTER(PublishOptions), POINTER(TensorSpec), c_size_t, _HANDLE_OUT),
    ),
    "gpuwm_publish_id": (c_char_p, (_HANDLE,)),
    "gpuwm_publish_order": (c_int, (_HANDLE, POINTER(c_size_t))),
    "gpuwm_publish_write": (c_int, (_HANDLE, c_size_t, c_uint64, c_void_p, c_uint64)),
    "gpuwm_publish_dlpack": (c_int, (_HANDLE, c_size_t, POINTER(c_void_p))),
    "gpuwm_publish_metadata": (c_int, (_HANDLE, c_char_p, c_char_p)),
    "gpuwm_publish_file": (c_int, (_HANDLE, c_char_p, c_char_p, c_size_t)),
    "gpuwm_publish_commit": (c_int, (_HANDLE, POINTER(VersionInfo))),
    "gpuwm_publish_commit_attached": (c_int, (_HANDLE, _HANDLE_OUT)),
    "gpuwm_publish_abort": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_load": (c_int, (_HANDLE, POINTER(LoadOptions), POINTER(c_uint64))),
    "gpuwm_job_wait": (c_int, (_HANDLE, c_uint64, c_int64)),
    "gpuwm_job_cancel": (c_int, (_HANDLE, c_uint64)),
    "gpuwm_swap": (c_int, (_HANDLE, POINTER(SwapOptions), c_char_p)),
    "gpuwm_pin": (c_int, (_HANDLE, c_char_p, c_char_p)),
    "gpuwm_unpin": (c_int, (_HANDLE, c_char_p, c_char_p)),
    "gpuwm_retire": (c_int, (_HANDLE, c_char_p, c_int64)),
    "gpuwm_remove": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_retire_by_force": (c_int, (_HANDLE, c_char_p, c_uint64, c_int64)),
    "gpuwm_kick": (c_int, (_HANDLE, c_int, c_uint64, POINTER(c_void_p))),
    "gpuwm_verify": (
        c_int,
        (_HANDLE, c_char_p, c_char_p, POINTER(c_uint64), POINTER(c_size_t)),
    ),
    "gpuwm_verify_source": (
        c_int,
        (_HANDLE, c_char_p, c_char_p, POINTER(c_uint64), POINTER(c_size_t)),
    ),
    "gpuwm_demote": (
        c_int,
        (_HANDLE, c_char_p, c_char_p, POINTER(c_uint64), POINTER(c_size_t)),
    ),
    "gpuwm_promote": (c_int, (_HANDLE, c_char_p, POINTER(c_uint64), POINTER(c_size_t))),
    "gpuwm_describe": (
        c_int,
        (_HANDLE, c_char_p, c_char_p, POINTER(c_uint64), POINTER(c_size_t)),
    ),
    "gpuwm_drain": (c_int, (_HANDLE,)),
    "gpuwm_drain_device": (c_int, (_HANDLE, c_char_p)),
    "gpuwm_reload": (c_int, (_HANDLE,)),
    "gpuwm_query": (c_int, (_HANDLE, c_char_p, c_char_p, POINTER(c_void_p))),
    "gpuwm_events_open": (c_int, (_HANDLE, c_uint64, _HANDLE_OUT)),
    "gpuwm_events_close": (c_void_p, (_HANDLE,)),
    "gpuwm_events_get_fd": (c_int, (_HANDLE,)),
    "gpuwm_events_dispatch": (c_int, (_HANDLE, c_int64, EventFunction, c_void_p)),
}
DLPACK_CAPSULE_END = "gpuwm_dlpack_capsule_end"  # only Python itself calls it
