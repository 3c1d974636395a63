"""Devices by gpuwmd's names, "host" or a UUID, from what callers call them."""

from __future__ import annotations

import ctypes
import functools
import operator
import re
import sys
from typing import TYPE_CHECKING, Any

from .. import errors
from . import lib

if TYPE_CHECKING:
    from .._client import Client

HOST = "host"
_ORDINAL = re.compile(r"cuda(?::(\d+))?$")


def resolve(device: Any, client: Client) -> str | None:
    """Returns gpuwmd's name of a device. None stays None, which means the version's device, or the
    current one.

    device: "host", "cpu", a UUID, "cuda:N" or N as this process counts (CUDA_VISIBLE_DEVICES),
    "cuda" (torch's current device, or the first), or a torch.device. Raises NoDevice.
    """
    name = named(device)
    if name is None:
        return None
    if name in ("host", "cpu"):
        return HOST
    found = _ORDINAL.match(name)
    if found is None:
        return name  # gpuwmd knows its UUIDs, and refuses any other
    ordinal = _current() if found.group(1) is None else int(found.group(1))
    uuid = _uuid(ordinal)
    # The driver gives the bytes of a UUID. gpuwmd knows whether it is a "GPU-" or a "MIG-".
    for known in client.devices:
        if known.is_cuda and known.id[4:].lower() == uuid:
            return known.id
    raise errors.NoDevice(
        f"cuda:{ordinal} is GPU-{uuid}, which gpuwmd does not have",
        f"it has {', '.join(d.id for d in client.devices)}",
    )


@functools.cache
def ordinal(name: str) -> int:
    """This process's number of the GPU with this name of gpuwmd's. Raises NoDevice. Needs torch."""
    import torch

    for number in range(torch.cuda.device_count()):
        if _uuid(number) == name[4:].lower():
            return number
    raise errors.NoDevice(f"this process does not see {name}", "look at CUDA_VISIBLE_DEVICES")


def on_cpu(name: str) -> bool:
    """Whether memory of the device with this name of gpuwmd's has addresses of the CPU's."""
    return name == HOST


def named(device: Any) -> str | None:
    """The device as a text. Raises TypeError if the value names no device."""
    if device is None or isinstance(device, str):
        return device
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device):
        return str(device)
    try:
        return f"cuda:{operator.index(device)}"
    except TypeError:
        wanted = '"host", a UUID, "cuda:N", N or a torch.device'
        raise lib.wrong("device", device, wanted) from None


def _current() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        current: int = torch.cuda.current_device()
        return current
    return 0


def _uuid(ordinal: int) -> str:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise errors.Unsupported(
            f"cuda:{ordinal}: there is no CUDA driver here: {error}", 'device="host" needs none'
        ) from None
    device = ctypes.c_int()
    data = (ctypes.c_ubyte * 16)()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), ordinal)),
        ("cuDeviceGetUuid_v2", (data, None)),
    ):
        result = driver[name](*(device if a is None else a for a in arguments))
        if result != 0:
            raise errors.NoDevice(
                f"there is no cuda:{ordinal}: {name} says {result}", "devices count from 0"
            )
    text = bytes(data).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
