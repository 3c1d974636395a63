"""Decides who builds a version: this process, another one, or the first that comes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from . import _client as clients
from . import _connection, errors
from ._attach import attach
from ._c import devices, lib
from ._c.handle import Handle
from ._lease import attach_options, waited
from ._mapping import Mapping as Attached
from ._mode import ByMode, Mode, Wait, mode_of, wait_of
from ._publish.making import Files
from ._publish.publish import publish
from ._shown.progress import Hook, Operation

T = TypeVar("T")


def obtain(
    ref: str,
    make: Callable[[], Any],
    *,
    mode: Mode | None = None,
    wait: Wait = ByMode.WAIT,
    device: Any = None,
    key: lib.Key | None = None,
    owner: lib.Owner | None = None,
    alias: str | None = None,
    files: Files | None = None,
    metadata: Mapping[str, str] | None = None,
    ttl: float | None = None,
    keep_last: int | None = None,
    private: str | Sequence[str] = (),
    progress: Hook | None = None,
    client: clients.Client | None = None,
) -> Attached:
    """Attaches to a version that is there, or makes it. Returns the mapping in any case.

    - ref: "model@tag"; in mode "load" as in `attach`.
    - make: returns what `gpuwm.publish` takes. Only the process that builds calls it.
    - mode: "load": only attach; raises NotFound if the version isn't there (or wait for it).
      "save": make it and publish it; raises Exists if it is there. "auto": of all processes that
      come at once one is elected to make it, and the others wait and attach; if it fails or dies,
      the next one is elected. None: $GPUWM_MODE, else "auto".
    - wait: seconds to wait for the version. None does not wait, math.inf waits for ever. If it is
      not given, "load" does not wait, and "auto" waits for the builder for ever.
    - key: it is published with these fields, and attached only if they are equal.
    - owner: as in `attach` if another process made it, and for each switch of the mapping.
    - device, client: as in `attach` and `publish`.
    - alias, files, metadata, ttl, keep_last, private: as in `publish`, if it is made here.
    - progress: is told of a wait, of the publish, and that `make` runs ("fill"): a function that
      gets each gpuwm.Progress. None: what `gpuwm.set_progress` says.

    Raises all errors of `attach` and `publish`, and whatever `make` raises. Refused: this user has
    no right to publish into the model and so can't make it, or the version has another owner.
    """
    lib.function(make, "make", "a function that returns what is to be published")
    lib.ref_bytes(ref)
    chosen = mode_of(mode, "auto")
    wait = wait_of(wait, chosen)
    # raises before anything is connected
    attach_options(devices.named(device), 0, wait, key, owner)
    if chosen == "local":
        raise errors.Unsupported(
            "mode local makes no versions, and obtain returns one",
            "gpuwm.builder, gpuwm.build and gpuwm.share work without gpuwmd",
        )
    if chosen == "load":
        return attach(
            ref,
            device=device,
            wait=wait,
            key=key,
            owner=owner,
            progress=progress,
            client=client,
        )
    make_it = functools.partial(
        publish,
        name=ref,
        device=device,
        key=key,
        owner=owner,
        alias=alias,
        files=files,
        metadata=metadata,
        ttl=ttl,
        keep_last=keep_last,
        private=private,
        progress=progress,
    )
    if chosen == "save":
        return make_it(filled(ref, make, progress), client=client)
    # Calls on a client wait for each other, and those who wait must not hold up the builder.
    began = time.monotonic()
    client = _connection.given(client) or _connection.connect(timeout=wait)
    left = 0 if wait is None else lib.seconds_left(wait, began)
    found = claim(client, ref, device, left, key, owner, progress)
    if found is not None:
        return found
    return elected(client, ref, lambda: make_it(filled(ref, make, progress), client=client))


def filled(ref: str, make: Callable[[], T], progress: Hook | None) -> T:
    """Calls a function that makes what is to be published. How far it is, only it knows."""
    with Operation("fill", ref, progress) as told:
        told.tell("filling")
        return make()


def claim(
    client: clients.Client,
    name: str,
    device: Any,
    wait: float | None,
    key: lib.Key | None,
    owner: lib.Owner | None = None,
    progress: Hook | None = None,
) -> Attached | None:
    """Attaches and returns the mapping. Returns None if this client is elected: it then publishes,
    or gives the claim up."""
    options = attach_options(devices.resolve(device, client), 0, wait, key, owner)
    text = lib.ref_bytes(name)
    late = _LateClaim(client, name)

    def call() -> Attached | None:
        out = ctypes.c_void_p()
        library = lib.load()
        result = lib.check(
            library.gpuwm_claim(client._held(), text, ctypes.byref(options), ctypes.byref(out))
        )
        if result == 1:
            late.note("elected")
            return None
        return Attached(Handle(out.value or 0, client.socket, name))

    try:
        return waited(call, name, client, options, progress)
    except BaseException:
        late.note("interrupted")
        raise


class _LateClaim:
    """Gives a claim up at once that comes to a client after the wait for it was interrupted."""

    def __init__(self, client: clients.Client, name: str) -> None:
        self._client, self._name = client, name
        self._lock = threading.Lock()
        self._noted: set[str] = set()

    def note(self, what: str) -> None:
        """Notes one of two events. When both have come, gives the claim up."""
        with self._lock:
            self._noted.add(what)
            if len(self._noted) == 2:
                _give_up(self._client, self._name)


def _give_up(client: clients.Client, name: str) -> None:
    # A publish that had begun took the claim over, and has ended it.
    with contextlib.suppress(errors.Error):
        lib.check(lib.load().gpuwm_claim_give_up(client._held(), lib.ref_bytes(name)))


def await_builder(client: clients.Client, name: str, wait: float | None) -> None:
    """Waits until nobody builds the version any more: it is there, or nobody is left. Raises
    TimedOut."""
    with contextlib.suppress(errors.Refused, errors.Lost, errors.Damaged):  # it is there
        if claim(client, name, None, wait, None) is None:
            _give_up(client, name)


def elected(client: clients.Client, name: str, make: Callable[[], Attached]) -> Attached:
    """Makes the version. If that fails, gives the claim up, so that the next one is elected."""
    try:
        return make()
    except BaseException:
        _give_up(client, name)
        raise
