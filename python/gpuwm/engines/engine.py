"""One load of a model by all ranks of an engine, and what it asks gpuwm for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from typing import ClassVar, NamedTuple

from .. import _client as clients
from .. import errors
from .._c import devices
from .._mapping import Mapping as Attached
from .caches import Caches
from .ranks import Ranks
from .raw import WHOLE, Checkpoint, Share
from .settings import Settings


class Named(NamedTuple):
    """The version's name, the identity of its checkpoint, and in mode raw the checkpoint."""

    name: str
    identity: dict[str, str]
    checkpoint: Checkpoint | None = None


@dataclass
class Engine:
    """One load of a model by all ranks of an engine.

    - name: the version that is attached or built.
    - ref: what `ref` says for this model; in mode raw the checkpoint, and not the name.
    - identity: of the checkpoint; empty in mode load, which takes any.
    - client: a connection of its own, which holds the claim.
    - device: gpuwm's name of this rank's device.
    - checkpoint: in mode raw what `ref` named when rank 0 computed `identity`.
    - share: this rank's of the model.
    - keeps_caches: the engine compiles, and has the setting "caches". caches: of rank 0.
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
    checkpoint: Checkpoint | None = None
    share: Share = WHOLE
    keeps_caches: bool = False
    caches: Caches | None = None
    seconds: dict[str, float] = default(default_factory=dict)

    def check(self, mapping: Attached, more: Mapping[str, str] | None = None) -> None:
        """Raises Mismatch, which names the field in which the version's key differs from this
        engine's. more: fields besides the layout and the identity."""
        self.compare(mapping, {**self.layout, **self.identity, **(more or {})})

    def compare(self, mapping: Attached, wanted: Mapping[str, str]) -> None:
        """`differences.compare`, with the remedies that users of this kind of engine have."""
        raise NotImplementedError


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
