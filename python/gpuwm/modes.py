"""Who builds a version: save, load, or whoever comes first."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from . import _lib, _threads, devices, errors
from . import client as clients
from ._handle import Handle
from ._making import Files
from .attaching import attach, attach_options
from .mapping import Mapping as Attached
from .publishing import publish

Mode = Literal["save", "load", "auto"]
_MODES: tuple[Mode, ...] = ("save", "load", "auto")


def mode_of(mode: Mode | None, otherwise: Mode) -> Mode:
    """What is asked for, else $GPUWM_MODE, else `otherwise`. Invalid."""
    chosen = mode or os.environ.get("GPUWM_MODE") or otherwise
    for known in _MODES:
        if chosen == known:
            return known
    source = "mode=" if mode else "GPUWM_MODE="
    raise errors.Invalid(f"{source}{chosen!r}", '"save", "load" or "auto"')


def obtain(
    ref: str,
    make: Callable[[], Any],
    *,
    mode: Mode | None = None,
    wait: float | None = None,
    device: Any = None,
    key: _lib.Key | None = None,
    owner: _lib.Owner | None = None,
    alias: str | None = None,
    files: Files | None = None,
    metadata: Mapping[str, str] | None = None,
    private: str | Sequence[str] = (),
    client: clients.Client | None = None,
) -> Attached:
    """A version that is there, or is made: the mapping, in any case.

    make: returns what `gpuwm.publish` takes, called by who builds and by nobody else.
    mode: "load": attach only, NotFound when it isn't there (or wait for it). "save": make it and
    publish it, Exists when it is there. "auto": of all processes that come at once one is elected
    to make it, the others wait and attach; when it fails or dies, the next one is elected.
    None: $GPUWM_MODE, else "auto".
    ref: "model@tag"; for "load" as in `attach`. wait: seconds for the version; None: "load" does
    not wait, "auto" waits for ever for who builds. device, client: as in `attach` and `publish`.
    key: it is published with these fields, and attached only when they are equal. owner: as in
    `attach`, where another process made it, and for each switch of the mapping. alias, files,
    metadata, private: as in `publish`, when it is made here.

    All errors of `attach` and `publish`, and whatever `make` raises. Refused: to make it, this user
    needs the right to publish into the model; another owner.
    """
    _lib.function(make, "make", "a function that returns what is to be published")
    _lib.ref_bytes(ref)
    attach_options(devices.named(device), 0, wait, key, owner)  # before anything is connected
    chosen = mode_of(mode, "auto")
    if chosen == "load":
        return attach(ref, device=device, wait=wait, key=key, owner=owner, client=client)
    make_it = functools.partial(
        publish,
        name=ref,
        device=device,
        key=key,
        owner=owner,
        alias=alias,
        files=files,
        metadata=metadata,
        private=private,
    )
    if chosen == "save":
        return make_it(make(), client=client)
    # Calls on a client wait for each other, and those who wait must not hold up who builds.
    client = clients.given(client) or clients.connect()
    found = claim(client, ref, device, math.inf if wait is None else wait, key, owner)
    return elected(client, ref, lambda: make_it(make(), client=client)) if found is None else found


def claim(
    client: clients.Client,
    name: str,
    device: Any,
    wait: float,
    key: _lib.Key | None,
    owner: _lib.Owner | None = None,
) -> Attached | None:
    """None: it is for this client to publish, or to give up."""
    options = attach_options(devices.resolve(device, client), 0, wait, key, owner)
    text = _lib.ref_bytes(name)
    left = _Left(client, name)

    def call() -> Attached | None:
        out = ctypes.c_void_p()
        library = _lib.load()
        result = _lib.check(
            library.gpuwm_claim(client._held(), text, ctypes.byref(options), ctypes.byref(out))
        )
        if result == 1:
            left.note("elected")
            return None
        return Attached(Handle(out.value or 0, client.socket, name))

    try:
        return _threads.wait_for(call)
    except BaseException:
        left.note("interrupted")
        raise


class _Left:
    """A claim that comes to a client after the wait for it was interrupted is given up at once."""

    def __init__(self, client: clients.Client, name: str) -> None:
        self._client, self._name = client, name
        self._lock = threading.Lock()
        self._noted: set[str] = set()

    def note(self, what: str) -> None:
        """The second of both gives it up."""
        with self._lock:
            self._noted.add(what)
            if len(self._noted) == 2:
                _give_up(self._client, self._name)


def _give_up(client: clients.Client, name: str) -> None:
    # A publish that was begun had taken the claim over, and ended it.
    with contextlib.suppress(errors.Error):
        _lib.check(_lib.load().gpuwm_claim_give_up(client._held(), _lib.ref_bytes(name)))


def elected(client: clients.Client, name: str, make: Callable[[], Attached]) -> Attached:
    """Makes it, or lets the next one."""
    try:
        return make()
    except BaseException:
        _give_up(client, name)
        raise
