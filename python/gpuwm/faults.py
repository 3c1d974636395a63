"""Writes into shared host memory that no guard sees: SIGSEGV, which the C library gives names."""

from __future__ import annotations

import functools
import os

from . import _lib
from ._handle import Handle

OFF = "0"  # of $GPUWM_NAME_FAULTS


def expect(handle: Handle) -> None:
    """Called before memory goes to a framework: one that does not know read-only memory may write.
    Nothing where there is none of the CPU's, or where writes are private."""
    if handle.device == "host" and not handle.private_writes:
        _install()


@functools.cache
def _install() -> None:
    """Once: a handler that the program installs later stays in front of it."""
    if os.environ.get("GPUWM_NAME_FAULTS") != OFF:
        _lib.load().gpuwm_name_faults()
