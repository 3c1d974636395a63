"""Makes a version of a model that an engine has loaded, by all ranks together."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from typing import Any

from .. import errors, image
from .._mapping import Mapping as Attached
from .._publish.making import Making, Spec, What
from . import election
from .engine import Engine


def publish(
    engine: Engine,
    model: Any,
    more: Mapping[str, str],
    made_by: Mapping[str, str],
    **how: Any,
) -> Attached:
    """Publishes this rank's model as a part. All ranks return when the version is ready, or all
    raise. The model stays in use, in the version's memory. Collective.

    more: fields of the key besides the engine's layout and identity. made_by: metadata, see
    `maker`. how: `opaque`, `ignored` and `written` of gpuwm.image.publish. Raises the errors of
    that function: NoRoom, Refused, Unsupported, Cancelled (another rank failed)… If it fails, the
    claim goes to the next engine, and the model is as usable as before.
    """
    common: dict[str, Any] = {
        "private": engine.settings.private,
        "key": {**engine.identity, **engine.layout, **more},
        "owner": engine.settings.owners,
        "metadata": {**engine.details, **made_by},
        "device": engine.device,
        "rank": engine.ranks.rank,
        "world": engine.ranks.world,
        "client": engine.client,
        **how,
    }
    announcement = _Announcement(engine)
    if engine.ranks.rank == 0:
        try:
            return image.publish(model, engine.name, announce=announcement.make, **common)
        except BaseException as error:
            announcement.fail(error)
            election.give_up(engine)
            raise
    begun = announcement.take()
    try:
        return image.publish(model, engine.name, join=begun, **common)
    except BaseException as error:
        _fail_part(engine, begun, error)
        raise


class _Announcement:
    """Takes the id of rank 0's publish, or why there is none, to the other ranks."""

    def __init__(self, engine: Engine) -> None:
        self._ranks, self._name, self._made = engine.ranks, engine.name, False

    def make(self, publish_id: str) -> None:
        self._made = True
        self._ranks.first((publish_id, ""))

    def fail(self, error: BaseException) -> None:
        """Tells the other ranks if the publish failed before its id was announced. Later gpuwmd
        tells them."""
        if not self._made:
            self._ranks.first(("", f"{type(error).__name__}: {error}"))

    def take(self) -> str:
        publish_id, text = self._ranks.first()
        if not publish_id:
            raise errors.Cancelled(f"rank 0 of this engine could not publish {self._name}: {text}")
        return str(publish_id)


def _fail_part(engine: Engine, publish_id: str, error: BaseException) -> None:
    """Fails the version if this rank failed before gpuwmd heard of its part: the other ranks would
    wait for it."""
    what = What(
        *(engine.name, engine.device, engine.ranks.rank, engine.ranks.world, publish_id),
        *(None, None),
    )
    # If the part was begun, gpuwmd knows that it failed, and this raises.
    with contextlib.suppress(errors.Error):
        Making(engine.client, what, [Spec("failed", "U8", (1,))]).abort(
            f"rank {engine.ranks.rank}: {type(error).__name__}: {error}"
        )


def made_by(engine: str, distribution: str, model: str) -> str:
    """Who makes a version, as JSON. engine: "vLLM"; its version follows. distribution: the package
    that has this version."""
    version = importlib.metadata.version(distribution)
    return json.dumps({"engine": f"{engine} {version}", "pid": os.getpid(), "model": model})


def maker(mapping: Attached, name: str) -> str:
    """Who made a version, for the log. name: of the metadata that has a text of `made_by`."""
    try:
        maker = json.loads(mapping.metadata[name])
        return f"{maker['engine']}, process {maker['pid']}, from {maker['model']}"
    except (KeyError, ValueError, TypeError):
        return "an unknown publisher"
