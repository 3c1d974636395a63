"""Writes into shared host memory that no guard sees. They end in SIGSEGV, and the C library names
the tensor."""

from __future__ import annotations

import functools
import os

from . import devices, lib
from .handle import Handle

OFF = "0"  # the value of $GPUWM_NAME_FAULTS


def expect(handle: Handle) -> None:
    """Installs the handler. Call it before memory goes to a framework, which may write into it. It
    does nothing for memory of a GPU, or if writes are private."""
    if devices.on_cpu(handle.device) and not handle.private_writes:
        _install()


@functools.cache
def _install() -> None:
    """Installs the handler once, so that one that the program installs later is not replaced."""
    if os.environ.get("GPUWM_NAME_FAULTS") != OFF:
        lib.load().gpuwm_name_faults(b'writes="private"')
