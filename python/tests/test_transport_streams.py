"""Chunks of a GPU are offered, taken and finished in streams: on the stand-in for the driver, which
torch can't reach, so no tensor is looked at."""

from __future__ import annotations

import contextlib
import ctypes
import pickle
from collections.abc import Iterator

import pytest
from conftest import Daemon, eventually, on_fakecuda
from test_transport_pool import is_free

import gpuwm
from gpuwm.transport import of_torch
from gpuwm.transport.refs import ChunkRef

pytestmark = on_fakecuda
MIB = 1 << 20


def new_stream() -> int:
    """A CUstream of the stand-in."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, made = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(made), 1) == 0
    assert made.value
    return made.value


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> int:
    """The stream that torch would have."""
    made = new_stream()
    monkeypatch.setattr(of_torch, "stream", lambda _device: made)
    monkeypatch.setattr(of_torch, "synchronize", lambda _device: None)
    return made


@pytest.fixture
def pool(daemon: Daemon, stream: int) -> Iterator[gpuwm.Pool]:
    with gpuwm.Pool(4 * MIB, daemon.device) as made:
        yield made


def sent(pool: gpuwm.Pool, others: int = 1) -> ChunkRef:
    ref: ChunkRef = pickle.loads(pickle.dumps(pool.empty(16, "float32").offer(others=others)))
    return ref


def test_a_reader_takes_and_finishes_in_its_stream(pool: gpuwm.Pool) -> None:
    ref = sent(pool)
    assert ref.device == pool.device
    assert pool.figures().chunks == 1
    with ref._reading() as chunk:
        assert not chunk.on_host
        export = chunk.export_bytes(64)
    assert pool.figures().chunks == 1  # the export keeps it
    del export, chunk
    eventually(lambda: is_free(pool))
    with pytest.raises(gpuwm.Already):
        ref.copy()


def test_a_release_is_in_the_stream_too(pool: gpuwm.Pool) -> None:
    sent(pool).release()
    eventually(lambda: is_free(pool))
    pool.empty(16, "float32").discard()
    assert is_free(pool)


def test_a_message_s_chunk_is_waited_for_in_the_stream(pool: gpuwm.Pool) -> None:
    with gpuwm.Queue(2) as messages:
        messages.put([pool.empty(16, "float32").offer(), pool.empty(16, "float32").offer()])
        first, second = messages.get()
        with first._reading(), contextlib.suppress(ValueError):
            raise ValueError
        assert pool.figures().chunks >= 1
        del second
        eventually(lambda: is_free(pool))


def test_numpy_can_not_look_there(pool: gpuwm.Pool) -> None:
    ref = sent(pool)
    with pytest.raises(gpuwm.Unsupported, match="NumPy"):
        ref.view("numpy")
    ref.release()  # nothing was taken before
    eventually(lambda: is_free(pool))
