"""Writes into shared host memory that no guard sees: SIGSEGV, which the C library gives names."""

from __future__ import annotations

import functools
import os

from . import _lib
from ._handle import Handle

OFF = "0"  # of $GPUWM_NAME_FAULTS


def expect(handle: Handle) -> None:
    """Call before memory goes to a framework, which may write into it. Does nothing if the memory
    is a GPU's, or if writes are private."""
    if handle.device == "host" and not handle.private_writes:
        _install()


@functools.cache
def _install() -> None:
    """Runs once, so that a handler that the program installs later is not replaced."""
    if os.environ.get("GPUWM_NAME_FAULTS") != OFF:
        _lib.load().gpuwm_name_faults()
