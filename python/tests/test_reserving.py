"""Addresses whose memory comes later, on host memory (the C library's tests have a GPU's too)."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from conftest import by_torch

import gpuwm
from gpuwm._c.reservation import Reservation

pytestmark = by_torch

BLOCK = 64 << 20


def bytes_of(reservation: Reservation, offset: int) -> np.ndarray:
    import torch

    found: np.ndarray = reservation.bytes_at(offset, 4, torch.device("cpu")).numpy()
    return found


def test_one_block_stands_in_until_memory_comes_to_the_same_addresses() -> None:
    with Reservation("host", 2 * BLOCK + 1) as reservation:
        assert reservation.nbytes == 3 * BLOCK
        here, there = bytes_of(reservation, 8), bytes_of(reservation, 2 * BLOCK + 8)
        here[:] = 7
        assert there.tolist() == [7] * 4
        reservation.occupy()
        assert here.tolist() == there.tolist() == [0] * 4
        here[:] = 8
        assert there.tolist() == [0] * 4
        reservation.occupy()  # nothing happens
        assert here.tolist() == [8] * 4


@pytest.mark.parametrize("place", [(-1, 4), (0, BLOCK + 1), (BLOCK, 1), (4, -1)])
def test_what_was_not_reserved_is_refused(place: tuple[int, int]) -> None:
    import torch

    with Reservation("host", BLOCK) as reservation, pytest.raises(ValueError, match="reserved"):
        reservation.bytes_at(*place, torch.device("cpu"))


def test_a_closed_one_is_refused() -> None:
    import torch

    reservation = Reservation("host", BLOCK)
    reservation.close()
    for call in (reservation.vacate, reservation.occupy):
        with pytest.raises(gpuwm.Closed):
            call()
    with pytest.raises(gpuwm.Closed):
        reservation.bytes_at(0, 1, torch.device("cpu"))
    reservation.close()  # nothing happens


@pytest.mark.parametrize(("device", "nbytes"), [("tape", 1), ("host", 0)])
def test_what_can_not_be_reserved_is_an_error(device: str, nbytes: int) -> None:
    with pytest.raises(gpuwm.Invalid):
        Reservation(device, nbytes)


def test_memory_may_come_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Reservation("host", BLOCK * 2) as reservation:
        reservation.vacate()
        reservation.vacate()  # nothing happens
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(gpuwm.Error, match="RLIMIT_NOFILE"):
                reservation.occupy()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reservation.occupy()
        assert bytes_of(reservation, BLOCK + 8).tolist() == [0] * 4
