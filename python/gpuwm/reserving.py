"""Addresses of a device whose memory comes later: libgpuwm-client's gpuwm_reserve."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _lib, errors

if TYPE_CHECKING:
    import torch


class Reservation:
    """Addresses for at least `nbytes` on a device ("host", or a GPU's UUID). One small block of
    memory is mapped all over them, so what is written at one address is read at others too, until
    `vacate` takes it away, or `occupy` puts memory of its own there. Invalid, NoDevice. NoRoom:
    the device has no memory for the block.

    address: where they begin. nbytes: how many there are, whole blocks. One thread at a time.
    """

    def __init__(self, device: str, nbytes: int) -> None:
        self._library = _lib.load()
        self._pointer = ctypes.c_void_p()
        self.device = device
        found = self._library.gpuwm_reserve(device.encode(), nbytes, ctypes.byref(self._pointer))
        _lib.check(found)
        size = ctypes.c_uint64()
        self.address: int = self._library.gpuwm_reservation_address(
            self._pointer, ctypes.byref(size)
        )
        self.nbytes: int = size.value

    def vacate(self) -> None:
        """Gives the block back, after waiting for the device. Nothing may use the addresses from
        now on until `occupy` has returned. Nothing happens if it is gone. Busy: a CUDA stream is
        being captured, and the block is there as before."""
        self._check_open()
        _lib.check(self._library.gpuwm_vacate(self._pointer))

    def occupy(self, wait: float = 0.0) -> None:
        """Puts memory behind all addresses, filled with zeros, after `vacate`. Nothing happens if
        it is there. wait: seconds for memory that others are giving back.

        NoRoom: nothing is mapped at the addresses, and the call may be repeated. Busy: as with
        `vacate`.
        """
        self._check_open()
        _lib.check(self._library.gpuwm_occupy(self._pointer, _lib.milliseconds(wait, "wait")))

    def bytes_at(self, offset: int, nbytes: int, device: torch.device) -> torch.Tensor:
        """A tensor of int8 over a part. It does not keep the reservation: close it later."""
        import torch

        self._check_open()
        if not 0 <= offset <= offset + nbytes <= self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} are not in the {self.nbytes} reserved")
        if self.device == "host":
            there = (ctypes.c_char * nbytes).from_address(self.address + offset)
            return torch.frombuffer(there, dtype=torch.int8)
        return torch.as_tensor(_DeviceBytes(self.address + offset, nbytes), device=device)

    def close(self) -> None:
        """Unmaps the memory. No tensor over it may be used any more. Busy: a CUDA stream is being
        captured, and nothing was done."""
        _lib.check(self._library.gpuwm_reservation_free(self._pointer))
        self._pointer = ctypes.c_void_p()

    def _check_open(self) -> None:
        if not self._pointer:
            raise errors.Closed("the reservation was closed")

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _DeviceBytes:
    """What torch takes for an array on a GPU."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|i1",
            "data": (address, False),
            "version": 3,
        }
