"""Addresses of a device that get their memory later: gpuwm_reserve of libgpuwm-client."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .. import errors
from . import devices, lib

if TYPE_CHECKING:
    import torch


class Reservation:
    """Addresses for at least `nbytes` on a device ("host", or the UUID of a GPU). One small block
    of memory is mapped at all of them, so what is written at one address is read at others too.
    `vacate` takes the block away, and `occupy` puts memory of its own there. Raises Invalid,
    NoDevice, and NoRoom if the device has no memory for the block.

    address: where they begin. nbytes: how many there are, in whole blocks. Only one thread at a
    time may use it.
    """

    def __init__(self, device: str, nbytes: int) -> None:
        self._library = lib.load()
        self._pointer = ctypes.c_void_p()
        self.device = device
        found = self._library.gpuwm_reserve(device.encode(), nbytes, ctypes.byref(self._pointer))
        lib.check(found)
        size = ctypes.c_uint64()
        self.address: int = self._library.gpuwm_reservation_address(
            self._pointer, ctypes.byref(size)
        )
        self.nbytes: int = size.value

    def vacate(self) -> None:
        """Waits for the device, then gives the block back. From now on nothing may use the
        addresses until `occupy` has returned. If the block is gone already, nothing happens. Raises
        Busy if a CUDA stream is being captured; the block is there as before."""
        self._check_open()
        lib.check(self._library.gpuwm_vacate(self._pointer))

    def occupy(self, wait: float = 0.0) -> None:
        """Puts memory behind all addresses, filled with zeros, after `vacate`. If it is there
        already, nothing happens. wait: seconds to wait for memory that others are giving back.

        Raises NoRoom: nothing is mapped at the addresses, and the call may be repeated. Raises Busy
        as `vacate` does.
        """
        self._check_open()
        lib.check(self._library.gpuwm_occupy(self._pointer, lib.milliseconds(wait, "wait")))

    def bytes_at(self, offset: int, nbytes: int, device: torch.device) -> torch.Tensor:
        """A tensor of int8 over a part of the addresses. It does not keep the reservation, so close
        that after it."""
        import torch

        self._check_open()
        if not 0 <= offset <= offset + nbytes <= self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} are not in the {self.nbytes} reserved")
        if devices.on_cpu(self.device):
            there = (ctypes.c_char * nbytes).from_address(self.address + offset)
            return torch.frombuffer(there, dtype=torch.int8)
        return torch.as_tensor(_DeviceBytes(self.address + offset, nbytes), device=device)

    def close(self) -> None:
        """Unmaps the memory. No tensor over it may be used any more. Raises Busy if a CUDA stream
        is being captured; nothing was done."""
        lib.check(self._library.gpuwm_reservation_free(self._pointer))
        self._pointer = ctypes.c_void_p()

    def _check_open(self) -> None:
        if not self._pointer:
            raise errors.Closed("the reservation was closed")

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _DeviceBytes:
    """An object that torch accepts as an array on a GPU."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|i1",
            "data": (address, False),
            "version": 3,
        }
