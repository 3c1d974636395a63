"""The plain checkpoint of mode raw: a version that gpuwm loaded, whole or cut for ranks.

A version that was cut (`gpuwmctl load --ranks N --cut PLAN`) has a part for each rank of tensor
parallelism. Each rank of the engine reads its own part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _cuts, errors
from .._attach import attach
from .._c import devices
from .._client import Client
from .._lease import look
from . import identity, texts

if TYPE_CHECKING:
    from .._c.handle import TensorInfo
    from .._mapping import Mapping as Attached
    from .engine import Engine


class Share(NamedTuple):
    """Which of the ranks of tensor parallelism a rank is, and how many there are."""

    rank: int
    world: int


WHOLE = Share(0, 1)


class Checkpoint(NamedTuple):
    """The version that `ref` named when rank 0 of the engine looked. version: its id. places: the
    device of each part; one part: it was not cut."""

    version: str
    places: tuple[str, ...]

    @property
    def world(self) -> int:
        return len(self.places)


def find(
    ref: str, share: Callable[[], Share], wait: float | None, client: Client
) -> tuple[Checkpoint, dict[str, str]]:
    """The checkpoint that a ref names now, and the fields of its identity. An alias may move, so
    whoever reads the checkpoint later attaches to the version's id.

    - share: of a rank of the engine; called only if the version has several parts.
    - wait: seconds to wait, as attach does.

    Raises NotFound if there is no ready version, and Mismatch if it was cut for another number of
    ranks.
    """
    row = _row(ref, client)
    places = {part["rank"]: part["device"] for part in row["parts"]}
    checkpoint = Checkpoint(row["version"], tuple(places[rank] for rank in sorted(places)))
    if checkpoint.world == 1:
        return checkpoint, identity.fields("gpuwm", row["content"], "")
    _check_world(ref, checkpoint.world, share().world)
    contents = {
        str(rank): look(checkpoint.version, device, rank, wait, client)[0].content
        for rank, device in enumerate(checkpoint.places)
    }
    return checkpoint, identity.fields("gpuwm", texts.digest(contents), "")


def _row(ref: str, client: Client) -> dict[str, Any]:
    """What gpuwmd lists of the version."""
    model, _, tag = ref.partition("@")
    listed = client.list(model)
    ids = {alias["alias"]: alias["version"] for alias in listed["aliases"]}
    wanted = ids.get(tag or "current")
    for version in listed["versions"]:
        if version["state"] == "ready" and (version["version"] == wanted or version["tag"] == tag):
            return dict(version)
    raise errors.NotFound(f"gpuwmd has no ready version {ref}", "gpuwmctl ls lists what it has")


def _check_world(ref: str, parts: int, ranks: int) -> None:
    if parts == ranks:
        return
    how = "without a plan" if ranks == 1 else f"with --ranks {ranks} --cut PLAN, or without a plan"
    raise errors.Mismatch(
        f'"mode": "raw": {ref} has a part for each of {parts} ranks, and the engine has {ranks} '
        f"rank{'' if ranks == 1 else 's'} of tensor parallelism",
        f"load the checkpoint as another version, {how}, and name that version",
    )


def attach_to(engine: Engine) -> Attached:
    """Attaches to the checkpoint whose identity the engine has, on its device or, if it is not
    there, on the host. If the checkpoint was cut, attaches to this rank's part. All ranks get the
    same version, even if an alias has moved since the engine was made. Raises NotFound if it is
    gone, NoDevice with the remedy, and Unsupported if its parts were not cut by a plan."""
    assert engine.ref is not None
    assert engine.checkpoint is not None
    version, world = engine.checkpoint.version, engine.checkpoint.world
    rank = engine.share.rank if world > 1 else 0
    try:
        try:
            found = _attach(engine, version, rank, engine.device)
        except errors.NoDevice:
            found = _attach(engine, version, rank, devices.HOST)
    except (errors.NotFound, errors.NoDevice) as error:
        raise missing(error, engine.ref, engine.device, world) from error
    if world > 1 and _cuts.PLAN not in found.metadata:
        found.close()
        raise errors.Unsupported(
            f'"mode": "raw": the parts of {engine.ref} were not cut from one checkpoint by gpuwm, '
            "so gpuwm does not know which rows they have",
            f"load the checkpoint with --ranks {world} --cut PLAN, or without a plan",
        )
    return found


def _attach(engine: Engine, version: str, rank: int, device: str) -> Attached:
    settings = engine.settings
    return attach(
        version,
        device=device,
        rank=rank,
        wait=settings.wait,
        owner=settings.owners,
        client=engine.client,
    )


def elsewhere(engine: Engine, part: Attached) -> list[TensorInfo]:
    """The tensors of the checkpoint of which the part has nothing, because the plan gives each to
    one other rank."""
    assert engine.checkpoint is not None
    version, places, wait = part.version, engine.checkpoint.places, engine.settings.wait
    kept = _cuts.kept(part.metadata.get(_cuts.PLAN, ""), version)
    return [
        info
        for rank, names in sorted(kept.items())
        if rank != version.rank and rank < len(places)
        for info in look(version.id, places[rank], rank, wait, engine.client)[1]
        if names.fullmatch(info.name)
    ]


def missing(error: errors.Error, ref: str, device: str, world: int = 1) -> errors.Error:
    """The error about a checkpoint that is not where the engine runs, with the remedy."""
    where = f"--device {device}"
    if world > 1:
        where = f"--ranks {world} --cut PLAN, and a --device for each rank in their order"
    remedy = f"gpuwmctl load FOLDER {ref} {where}"
    return type(error)(
        f'"mode": "raw": {error.message}',
        f"load the checkpoint where the engine runs: {remedy}",
        code=error.code,
        name=error.name,
    )
