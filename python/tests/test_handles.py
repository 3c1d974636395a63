"""Copies by legacy CUDA IPC, attached and handed to processes without gpuwm."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually, on_fakecuda, on_host

import gpuwm

Checkpoint = Callable[[Any], str]

# With the driver alone: argv has handle, offset and bytes of a tensor. Prints the bytes.
STRANGER = """
import ctypes, sys
cu, P = ctypes.CDLL("libcuda.so.1"), ctypes.c_ulonglong
class H(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 64),)
def ok(result):
    assert result == 0, result
handle = H.from_buffer_copy(bytes.fromhex(sys.argv[1]))
offset, count = map(int, sys.argv[2:])
context, address = ctypes.c_void_p(), P()
ok(cu.cuInit(0))
ok(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cu.cuCtxPushCurrent_v2(context))
cu.cuIpcOpenMemHandle_v2.argtypes = (ctypes.c_void_p, H, ctypes.c_uint)
ok(cu.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1))
found = (ctypes.c_ubyte * count)()
ok(cu.cuMemcpyDtoH_v2(found, P(address.value + offset), ctypes.c_size_t(count)))
print(bytes(found).hex())
"""


def read_by_a_stranger(args: tuple[Any, ...]) -> bytes:
    _, handle, nbytes, offset, _, _, event, waits = args
    assert (event, waits) == (b"", False)  # a process of another user could not open an event
    words = [handle.hex(), str(offset), str(nbytes)]
    found = subprocess.run(
        [sys.executable, "-c", STRANGER, *words], stdout=subprocess.PIPE, check=True, text=True
    )
    return bytes.fromhex(found.stdout)


def weights() -> dict[str, Any]:
    return {"a": np.arange(64, dtype=np.float32), "b": np.full((4, 8), 7, np.int16)}


@on_fakecuda
def test_a_copy_is_attached_as_any_version(daemon: Daemon, checkpoint: Checkpoint) -> None:
    name = checkpoint(weights())
    with gpuwm.attach(name, transport="cuda_ipc") as mapping:
        assert mapping["a"].tobytes() == weights()["a"].tobytes()
        assert daemon.admin.status()["copies"] == 1
        with pytest.raises(gpuwm.Unsupported, match="cuda_ipc"):
            mapping.switch(name)


@on_fakecuda
def test_handles_are_plain_data_for_a_process_without_gpuwm(checkpoint: Checkpoint) -> None:
    with gpuwm.handles(checkpoint(weights())) as handles:
        for name, array in weights().items():
            args = pickle.loads(pickle.dumps(handles.torch_args(name)))
            assert read_by_a_stranger(args) == array.tobytes()
            assert handles.tensors[name].shape == array.shape
        assert len(handles.event) == 64
        with pytest.raises(gpuwm.NoTensor):
            handles.torch_args("c")


@on_fakecuda
def test_handles_end_with_their_holder(checkpoint: Checkpoint) -> None:
    handles = gpuwm.handles(checkpoint(weights()))
    handles.check()
    os.kill(handles.holder, signal.SIGKILL)

    def is_lost() -> bool:
        try:
            handles.check()
        except gpuwm.Lost as error:
            return "its copy is gone with the holder" in error.message
        return False

    eventually(is_lost)
    handles.close()
    handles.close()
    with pytest.raises(gpuwm.Closed):
        handles.check()


@on_fakecuda
def test_a_tensor_without_bytes_has_nothing_to_open(checkpoint: Checkpoint) -> None:
    empty = {"none": np.zeros((0, 4), np.float32), "w": np.ones(4, np.float32)}
    with (
        gpuwm.handles(checkpoint(empty)) as handles,
        pytest.raises(gpuwm.Unsupported, match="no bytes"),
    ):
        handles.torch_args("none")


def test_other_transports_are_refused_by_name(checkpoint: Checkpoint) -> None:
    name = checkpoint(weights())
    with pytest.raises(gpuwm.Invalid, match="fabric"):
        gpuwm.attach(name, transport="fabric")  # type: ignore[call-overload]
    with pytest.raises(gpuwm.Unsupported, match="descriptors"):
        gpuwm.handles(name, transport="fd")


@on_host
def test_host_memory_has_no_copies(checkpoint: Checkpoint) -> None:
    name = checkpoint(weights())
    with pytest.raises(gpuwm.Unsupported, match="host is no GPU"):
        gpuwm.attach(name, transport="cuda_ipc")
    with pytest.raises(gpuwm.Unsupported, match="host is no GPU"):
        gpuwm.handles(name)
