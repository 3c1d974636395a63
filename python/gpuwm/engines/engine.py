"""One load of a model by all ranks of an engine, and what it asks gpuwm for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from typing import ClassVar, NamedTuple

from .. import client as clients
from .. import devices, errors
from ..attaching import attach
from ..mapping import Mapping as Attached
from .ranks import Ranks
from .settings import Settings


class Named(NamedTuple):
    """The version's name, the identity of its checkpoint, and in mode raw the checkpoint's id."""

    name: str
    identity: dict[str, str]
    checkpoint: str | None = None


@dataclass
class Engine:
    """One load of a model by all ranks of an engine.

    - name: the version that is attached or built.
    - ref: what `ref` says for this model; in mode raw the checkpoint, and not the name.
    - identity: of the checkpoint; empty in mode load, which takes any.
    - client: a connection of its own, which holds the claim.
    - device: gpuwm's name of this rank's device.
    - checkpoint: in mode raw the id of the version that `ref` named when rank 0 computed
      `identity`.
    - seconds: how long its first steps took, for the log.
    - log: where an engine of this kind logs.
    """

    log: ClassVar[logging.Logger] = logging.getLogger("gpuwm")

    settings: Settings
    client: clients.Client
    ranks: Ranks
    device: str
    layout: dict[str, str]
    details: dict[str, str]
    identity: dict[str, str]
    name: str
    ref: str | None
    checkpoint: str | None = None
    seconds: dict[str, float] = default(default_factory=dict)

    def check(self, mapping: Attached, more: Mapping[str, str] | None = None) -> None:
        """Raises Mismatch, which names the field in which the version's key differs from this
        engine's. more: fields besides the layout and the identity."""
        self.compare(mapping, {**self.layout, **self.identity, **(more or {})})

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        """`differences.compare`, with the remedies that users of this kind of engine have."""
        raise NotImplementedError


def attach_raw(engine: Engine) -> Attached:
    """Attaches to the plain checkpoint whose identity the engine has, on its device or, if it is
    not there, on the host. All ranks get the same version, even if an alias has moved since the
    engine was made. Raises NotFound if it is gone, and NoDevice with the remedy."""
    assert engine.ref is not None
    assert engine.checkpoint is not None
    wait, owner, client = engine.settings.wait, engine.settings.owners, engine.client
    version = engine.checkpoint
    try:
        try:
            return attach(version, device=engine.device, wait=wait, owner=owner, client=client)
        except errors.NoDevice:
            return attach(version, device=devices.HOST, wait=wait, owner=owner, client=client)
    except (errors.NotFound, errors.NoDevice) as error:
        raise no_checkpoint(error, engine.ref, engine.device) from error


def no_checkpoint(error: errors.Error, ref: str, device: str) -> errors.Error:
    return type(error)(
        f'"mode": "raw": {error.message}',
        f"load the checkpoint where the engine runs: gpuwmctl load FOLDER {ref} --device {device}",
        code=error.code,
        name=error.name,
    )


def check_places(places: list[tuple[str, str]]) -> None:
    """Raises Unsupported if the ranks use several gpuwmds. places: gpuwmd's instance and the device
    of each rank."""
    instances = {instance for instance, _ in places}
    if len(instances) > 1:
        raise errors.Unsupported(
            f"the ranks of this engine reach {len(instances)} different gpuwmds, and the parts of "
            "a version are held by one",
            "run all ranks on one machine, with one GPUWM_SOCKET",
        )


def device_of(kind: str) -> str:
    """gpuwm's name of this rank's device of a kind of torch, "cuda" or "cpu". Raises Unsupported if
    gpuwm holds no memory of that kind."""
    import torch

    if kind == "cpu":
        return devices.HOST
    if kind == "cuda":
        return f"cuda:{torch.cuda.current_device()}"
    raise errors.Unsupported(
        f"load format gpuwm refuses the device {kind}: gpuwm holds memory of CUDA and of the host",
        "start the engine with --load-format auto",
    )
