"""`gpuwm.handles`: a version's memory by legacy CUDA IPC, for processes without gpuwm."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any, NamedTuple

from . import errors
from ._c import abi, devices, lib, threads
from ._c.handle import TensorInfo, infos_of
from ._client import Client
from ._connection import for_options
from ._lease import attach_options, transport_number
from ._version import Version, version_of

HANDLE_BYTES = 64
# torch counts down in a file of this name when it lets the memory go, and ignores that there is
# none: here the lease counts.
_NO_COUNTER = b"/gpuwm-counts-leases"


class Segment(NamedTuple):
    """A piece of the copy. handle: a cudaIpcMemHandle_t. nbytes: its size."""

    handle: bytes
    nbytes: int


class Place(NamedTuple):
    """Where a tensor lies: its segment, and the offset of its first byte there."""

    segment: int
    offset: int


class Handles:
    """Handles of a copy of a version, which any process on this host opens that sees the GPU.

    The copy is there as long as this object: close it, or use it in a `with` block. A process that
    has opened the copy by then goes on to read it.

    - version: the version that was copied.
    - segments: a Segment for each segment.
    - event: a cudaIpcEventHandle_t, recorded when the copy was complete. It is there for programs
      that want one: only processes of the holder's user open it, and nobody has to wait for it.
    - holder: the pid of the process that holds the copy; the copy dies with it.
    - tensors, places: by name, what each tensor is and where it lies.
    """

    def __init__(self, pointer: int) -> None:
        self._library = lib.load()
        self._pointer: int | None = pointer
        self._end = weakref.finalize(self, self._library.gpuwm_handles_release, pointer)
        self._end.atexit = False
        self.version: Version = version_of(self._library.gpuwm_handles_version(pointer).contents)
        self.event: bytes
        self.holder: int
        self.event, self.holder = self._read_event(pointer)
        self.segments: list[Segment] = self._read_segments(pointer)
        count: int = self._library.gpuwm_handles_tensor_count(pointer)
        array = (abi.Tensor * count)()
        for position, tensor in enumerate(array):
            lib.check(
                self._library.gpuwm_handles_tensor_at(pointer, position, ctypes.byref(tensor))
            )
        infos = infos_of(array)
        self.tensors: dict[str, TensorInfo] = {info.name: info for info in infos}
        self.places: dict[str, Place] = {
            info.name: Place(tensor.segment, tensor.offset)
            for info, tensor in zip(infos, array, strict=True)
        }

    def _read_event(self, pointer: int) -> tuple[bytes, int]:
        event = (ctypes.c_ubyte * HANDLE_BYTES)()
        holder = ctypes.c_uint64()
        lib.check(self._library.gpuwm_handles_ipc_event(pointer, event, ctypes.byref(holder)))
        return bytes(event), holder.value

    def _read_segments(self, pointer: int) -> list[Segment]:
        count: int = self._library.gpuwm_handles_version(pointer).contents.segments
        handle = (ctypes.c_ubyte * HANDLE_BYTES)()
        nbytes = ctypes.c_uint64()
        segments = []
        for position in range(count):
            lib.check(
                self._library.gpuwm_handles_ipc_segment(
                    pointer, position, handle, ctypes.byref(nbytes)
                )
            )
            segments.append(Segment(bytes(handle), nbytes.value))
        return segments

    def torch_args(self, name: str, device: int = 0) -> tuple[Any, ...]:
        """The arguments of `torch.UntypedStorage._new_shared_cuda`, which makes a storage of the
        tensor's bytes in a process that has torch and no gpuwm. The tuple is plain data, and may be
        pickled or written as text. device: the GPU as that process counts.

        Raises NoTensor, and Unsupported for a tensor without bytes.
        """
        try:
            info, place = self.tensors[name], self.places[name]
        except KeyError:
            raise errors.NoTensor(f"{self.version} has no tensor {name}") from None
        if info.nbytes == 0:
            raise errors.Unsupported(
                f"{name} has no bytes, so there is nothing to open", "make an empty tensor"
            )
        handle = self.segments[place.segment].handle
        return device, handle, info.nbytes, place.offset, _NO_COUNTER, 0, b"", False

    def check(self) -> None:
        """Raises Lost if the lease is lost: the copy's holder is gone, or another gpuwmd runs now.

        Raises nothing while no gpuwmd runs."""
        if self._pointer is None:
            raise errors.Closed("the handles were closed", "ask for new ones")
        lib.check(self._library.gpuwm_handles_check(self._pointer))

    def __repr__(self) -> str:
        closed = ", closed" * (self._pointer is None)
        return (
            f"<gpuwm.Handles of {self.version} on {self.version.device}: {len(self.tensors)} "
            f"tensors in {len(self.segments)} segments, held by process {self.holder}{closed}>"
        )

    def close(self) -> None:
        """Gives the lease back. A second call does nothing."""
        self._pointer = None
        self._end()

    def __enter__(self) -> Handles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def handles(
    ref: str,
    *,
    device: Any = None,
    rank: int = 0,
    wait: float | None = None,
    key: lib.Key | None = None,
    owner: lib.Owner | None = None,
    transport: str = "cuda_ipc",
    client: Client | None = None,
) -> Handles:
    """Takes a lease on a copy of a version, and returns handles that other processes open.

    gpuwmd has the copy made, or takes the one that this user has. It takes the part's bytes and a
    CUDA context of the GPU once more. All processes that open it can write into it.

    - ref, device, rank, wait, key, owner, client: as of `gpuwm.attach`.
    - transport: "cuda_ipc"; descriptors go only through gpuwm itself.

    Raises the errors of `gpuwm.attach`, and Unsupported if the version is on host or the GPU has no
    legacy CUDA IPC.
    """
    if transport_number(transport) == transport_number("fd"):
        raise errors.Unsupported(
            "transport='fd': descriptors can't be handed on as bytes", "attach there with gpuwm"
        )
    options = attach_options(devices.named(device), rank, wait, key, owner)
    options.transport = transport_number(transport)
    client = for_options(options, client)
    options.device = lib.maybe_text(devices.resolve(device, client), "device")
    return threads.wait_for(functools.partial(_take, client, ref, options))


def _take(client: Client, ref: str, options: abi.AttachOptions) -> Handles:
    out = ctypes.c_void_p()
    lib.check(
        lib.load().gpuwm_get_handles(
            client._held(), lib.ref_bytes(ref), ctypes.byref(options), ctypes.byref(out)
        )
    )
    return Handles(out.value or 0)
