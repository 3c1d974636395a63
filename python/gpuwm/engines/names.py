"""Connects an engine to gpuwmd, and names the version that it attaches to or builds."""

from __future__ import annotations

import abc
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from .. import _client as clients
from .. import _connection, errors
from .._c import devices
from . import fields, raw
from .engine import Engine, Named, check_places, device_of
from .ranks import Ranks
from .settings import Settings

DRAFT = ".draft"  # the end of a draft's ref; the rest is the target's ref


class Load(abc.ABC):
    """One model that an engine loads, as the engine's configuration describes it. Each kind of
    engine has a subclass.

    - kind: "vllm": gpuwmd knows the engine by it, and the tags of derived names begin with it.
    - engine: the class of the engine that `connect` makes.
    - rank_fields: the layout's fields that tell one rank's part from another's. A version has one
      name, so the name can't depend on them.
    - model_config: the engine's configuration of the model, which has the model's `dtype`.
    """

    kind: ClassVar[str]
    engine: ClassVar[type[Engine]]
    rank_fields: ClassVar[Collection[str]]
    model_config: Any

    @property
    @abc.abstractmethod
    def model(self) -> str:
        """The model's path or its name, for messages and for the version's name."""

    @property
    def files(self) -> str:
        """The path or the name of the files of weights, for messages."""
        return self.model

    @property
    @abc.abstractmethod
    def device_kind(self) -> str:
        """torch's name of the kind of device on which the model runs: "cuda" or "cpu"."""

    @abc.abstractmethod
    def ranks(self) -> Ranks:
        """The ranks that load this model together."""

    @abc.abstractmethod
    def share(self) -> raw.Share:
        """This rank's share of the model, in tensor parallelism."""

    @abc.abstractmethod
    def ref(self, settings: Settings) -> str | None:
        """The ref for this model. A draft that has its target's settings gets a ref of its own."""

    @abc.abstractmethod
    def layout(self) -> dict[str, str]:
        """The key's fields that say how the weights of this rank lie in memory."""

    @abc.abstractmethod
    def details(self) -> dict[str, str]:
        """Metadata for the version: the texts of which the key has only digests."""

    @abc.abstractmethod
    def identity(self, inner: str) -> dict[str, str]:
        """The key's fields that say which checkpoint it is. inner: the load format that would read
        the files. Raises the errors of `identity.of_files`."""

    @abc.abstractmethod
    def compared(self, found: Collection[str]) -> Collection[str]:
        """The fields of the identity that are the same before and after the engine's loader has
        read the checkpoint. found: all that the identity has."""

    def derived_name(
        self, identity: Mapping[str, str], layout: Mapping[str, str], at: Sequence[str] = ()
    ) -> str:
        """`fields.derived_name` of this model. at: gpuwm's names of the devices of all ranks."""
        return fields.derived_name(self.model, self.kind, identity, layout, self.rank_fields, at)


def connect(load: Load, settings: Settings) -> Engine:
    """Connects, computes keys and names, and compares them with the other ranks. Collective: see
    Ranks. Raises Unreachable (there is no gpuwmd), Unsupported (ranks that can't share a version),
    NotFound and Mismatch (the checkpoint of mode raw) and OSError (the checkpoint's files)."""
    ranks = load.ranks()
    error: Exception | None = None
    here: tuple[str, str] = ("", "")
    try:
        began = time.monotonic()
        client = _connection.connect(settings.socket, name=load.kind, wait=settings.wait)
        settings = settings.after(began)
        device = devices.resolve(device_of(load.device_kind), client) or devices.HOST
        here = client.instance, device
        layout = load.layout()
        details = load.details()
        share = load.share()
    except Exception as failed:
        error = failed
    ranks.agree("connect to gpuwmd", error)
    places = ranks.gather(here)
    check_places(places)
    found: Named | None = None
    try:
        if ranks.rank == 0:
            found = named(load, settings, client, layout, [at for _, at in places])
    except Exception as failed:
        error = failed
    ranks.agree("name the version", error)
    name, identity, checkpoint = ranks.first(found)
    return load.engine(
        *(settings, client, ranks, device, layout, details),
        *(identity, name, load.ref(settings), checkpoint, share),
    )


def named(
    load: Load,
    settings: Settings,
    client: clients.Client,
    layout: Mapping[str, str],
    at: Sequence[str],
) -> Named:
    """Names the version for all ranks. at: gpuwm's names of the devices of all ranks. Raises
    NotFound and Mismatch (the checkpoint of mode raw), Unsupported (the checkpoint's content can't
    be known, and there is no ref), and other errors of `Load.identity`."""
    ref = load.ref(settings)
    if settings.mode == "load":
        assert ref is not None
        return Named(ref, {})
    if settings.mode == "raw":
        assert ref is not None
        try:
            checkpoint, found = raw.find(ref, load.share, settings.wait, client)
        except errors.NotFound as error:
            raise raw.missing(error, ref, at[0]) from error
        return Named(load.derived_name(found, layout, at), found, checkpoint)
    try:
        found = load.identity(settings.inner)
    except errors.Unsupported as error:
        if ref is None:
            raise
        load.engine.log.warning(
            "gpuwm: whether %s is of the checkpoint of this engine is not checked: %s", ref, error
        )
        found = {}
    return Named(ref or load.derived_name(found, layout, at), found)


def check_unchanged(load: Load, engine: Engine) -> None:
    """Raises Mismatch if the checkpoint is no longer the one whose identity the engine has, because
    it changed while the engine waited or read. Call it after the files were read and before the
    model is published.

    Only rank 0 looks. The function does nothing if the identity is not known, and in mode raw,
    where the bytes of a version do not change. It also raises what the identity of files raises.
    """
    if not engine.identity or engine.checkpoint is not None or engine.ranks.rank != 0:
        return
    now = load.identity(engine.settings.inner)
    for field in sorted(load.compared(now)):
        before, after = engine.identity.get(field), now.get(field)
        if before != after:
            raise errors.Mismatch(
                f"the checkpoint {load.files} changed while it was read: {field} was "
                f"{before} when {engine.name} was named, and is {after} now",
                "start the engine again when nobody writes the checkpoint",
            )
