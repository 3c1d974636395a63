"""Publishes a trainer's weights as versions in the layout that engines have installed.

    import gpuwm.vllm

    with gpuwm.vllm.publisher("policy", model="Qwen/Qwen3-8B") as publisher:
        for step in range(steps):
            train()
            publisher.publish(f"step-{step}", named_tensors, alias="prod")

The tensors have the names and shapes of the model's checkpoint. vLLM's own code builds the model
and loads them, in the trainer's process: fused, sharded for each rank, quantised, as in an engine.
The result is compared with a version that engines use, so that all of them can move to the new one
(`gpuwm.vllm.switch`, `gpuwm.vllm.transfer`). Nobody sees a version before it is complete.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import _client as clients
from .. import _connection, errors
from .._c import lib
from .._lease import wait_for_parts
from .._publish.making import Making, What, metadata_of
from ..engines import identity
from ..engines.clock import Clock
from ..image import record
from . import differences, keys, layouts, publication, refusals, stand_in
from .coverage import Tensors

if TYPE_CHECKING:
    from torch import Tensor

    from .fill import Skeleton

log: logging.Logger = logging.getLogger("vllm.gpuwm")
# How many of its own versions a publisher leaves: the one that engines move to, and the one that
# they move from.
KEEP_LAST = 2
# How long gpuwmd may take to check parts that were committed: as long as a switch may take to be
# prepared.
READY_S = 120.0


@dataclasses.dataclass(frozen=True)
class Published:
    """A version that is ready.

    - bytes: of all its parts.
    - copied: how many of these bytes did not get there by loading: they were copied after
      post-processing, or belong to parameters below layouts.SMALL_BYTES.
    - ignored: tensors of which vLLM took nothing unchanged: it does not use them, or computed
      something else of them.
    - seconds: of "begin", "load" and "commit".
    """

    version: str
    id: str
    bytes: int
    copied: int
    ignored: tuple[str, ...]
    seconds: Mapping[str, float]


def publisher(
    name: str,
    *,
    model: str,
    like: str | None = None,
    keep_last: int = KEEP_LAST,
    owner: lib.Owner | None = None,
    client: clients.Client | None = None,
    **engine_args: Any,
) -> Publisher:
    """Makes a publisher of versions of the model `name` of gpuwm, for a trainer.

    - model: what engines load: a folder, or a name of the Hugging Face hub. Only its configuration
      is read here.
    - like: a version that engines use, whose layout the new ones have: "policy@step-0", an alias,
      an id. None: `name`, which means its alias `current`.
    - engine_args: the arguments of vLLM's EngineArgs with which the engines were started, as far as
      weights depend on them: tensor_parallel_size=2, quantization="fp8", dtype="bfloat16"…
    - keep_last: how many of the versions that this publisher made stay. It retires older ones,
      which are freed when no engine uses them. A version that an alias names stays until the alias
      has moved.
    - owner: whose versions `like` may be, as in gpuwm.attach. None: this user's and the operators'.
    - client: None: a connection of its own.

    Raises Mismatch (the first field in which the engines' key differs from what these arguments
    give), Unsupported (pipeline, data or context parallelism, and what load format gpuwm refuses),
    NotFound (there is no version `like`), NoDevice (this process does not see its GPUs), and what
    vLLM raises for the arguments.
    """
    return Publisher(name, model, like or name, keep_last, owner, client, engine_args)


class Publisher:
    """The result of `publisher`. Only one thread at a time may use it. While `publish` runs, nobody
    else may use vLLM in this process: vLLM takes the process for each rank of an engine in turn."""

    def __init__(
        self,
        name: str,
        model: str,
        like: str,
        keep_last: int,
        owner: lib.Owner | None,
        client: clients.Client | None,
        engine_args: dict[str, Any],
    ) -> None:
        if "@" in name:
            raise errors.Invalid(f"name {name!r}", "give the model alone: publish() takes the tag")
        if keep_last < 1:
            raise errors.Invalid(f"keep_last={keep_last}", "1 or more: the last version stays")
        self._name, self._keep_last = name, keep_last
        self._own = (os.getuid(), "operator") if owner is None else owner
        self._lock = threading.Lock()
        self._config = _config(model, engine_args)
        self._made: list[str] = []  # ids, the oldest first
        self._skeletons: list[Skeleton] = []  # empty once it was closed
        self._is_ours = client is None
        self._client = client or _connection.connect(name="trainer")
        try:
            self._parts = layouts.parts_of(like, self._own, self._client)
            self._keys = [self._key(part) for part in self._parts]
            self._skeletons += [self._skeleton(part) for part in self._parts]
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        closed = "" if self._skeletons else ", closed"
        return f"<gpuwm.vllm.Publisher of {self._name}: {len(self._parts)} parts{closed}>"

    def publish(self, tag: str, tensors: Any, *, alias: str | None = None) -> Published:
        """Makes the version `name@tag` of the tensors. It is ready when this returns.

        - tensors: a mapping, or pairs, of the checkpoint's names and torch tensors, on any device.
          Floating-point dtypes are converted to the model's. With several ranks, each takes a pass
          over them: give a mapping, a list or a function that returns pairs, and not a generator.
          The tensors stay unchanged, and nothing refers to them afterwards.
        - alias: moved to the version when it is ready, so that engines that follow the alias move.

        Raises Mismatch (a tensor is missing, or has a name, shape or dtype that vLLM can't load, or
        a value in the model's layout would be another than engines have; it names the first),
        Invalid (something is not a tensor, or a generator was given for several ranks), Exists (the
        tag is taken), NoRoom, Refused (this user is no publisher), Quota, Disconnected, Cancelled
        and NoDevice.

        After an error, and if this process dies, there is no such version, except in two cases.
        After Disconnected with the code ECONNABORTED gpuwmd took a commit and did not come back in
        time; the version may be ready, and this publisher never retires it. After TimedOut or
        Unreachable the version may become ready once gpuwmd has checked all parts.
        """
        with self._lock:
            if not self._skeletons:
                raise errors.Closed("the publisher was closed", "make another one")
            found = self._publish(tag, tensors, alias)
            self._retire_old()
            return found

    def close(self) -> None:
        """Closes the publisher. Its versions stay."""
        self._skeletons.clear()
        if self._is_ours:
            self._client.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- its begin ----

    def _key(self, part: layouts.Part) -> dict[str, str]:
        """The layout's fields of one rank, which are those of the version that engines use."""
        model_config = self._config.model_config
        at = keys.Ranks(tp=part.rank, experts=part.rank)
        layout = keys.layout(self._config, model_config, at=at)
        part.check_key(layout, differences.details(self._config, model_config))
        return layout

    def _skeleton(self, part: layouts.Part) -> Skeleton:
        from .fill import Skeleton

        device = layouts.torch_device(part.device, self._client)
        skeleton = Skeleton(self._config, part, device)
        chosen = skeleton.chosen()
        part.check_key(chosen, {})
        self._keys[part.rank].update(chosen)
        return skeleton

    # ---- one version ----

    def _publish(self, tag: str, tensors: Any, alias: str | None) -> Published:
        clock, given = Clock(), Tensors()
        passes = _passes(tensors, len(self._parts))
        makings = self._begin(f"{self._name}@{tag}", alias)
        clock.lap("begin")
        try:
            copied = 0
            for making, skeleton in zip(makings, self._skeletons, strict=True):
                filled = skeleton.fill(making, passes(), given)
                making.file(record.FILE, filled.text)
                copied += filled.copied
            given.check()
            clock.lap("load")
            versions = [making.commit() for making in makings]
            self._made.append(versions[0].id)  # `keep_last` counts it even if the next wait fails
            if len(versions) > 1:
                wait_for_parts(versions[0], self._client, READY_S)
        except BaseException as error:
            for making in makings:
                making.abort(f"{type(error).__name__}: {error}")
            raise
        clock.lap("commit")
        version = versions[0]
        nbytes = sum(each.nbytes for each in versions)
        found = Published(
            str(version), version.id, nbytes, copied, given.ignored(), dict(clock.times)
        )
        log.info(
            "gpuwm: published %s (%s), %.2f GB, of which %.2f GB were copied after loading: %s",
            found.version,
            found.id,
            nbytes / 1e9,
            copied / 1e9,
            ", ".join(f"{what} {seconds:.3f} s" for what, seconds in found.seconds.items()),
        )
        return found

    def _begin(self, name: str, alias: str | None) -> list[Making]:
        """Begins a publish for each part. The others join with the first one's id."""
        makings: list[Making] = []
        try:
            for part, key in zip(self._parts, self._keys, strict=True):
                fields = {identity.PREFIX + "kind": "a trainer's tensors", **key}
                what = What(
                    *(name, part.device, part.rank, len(self._parts)),
                    *(makings[0].id if makings else None, None if makings else alias, fields),
                )
                makings.append(Making(self._client, what, part.specs))
                makings[-1].metadata(metadata_of(self._metadata(part)))
        except BaseException as error:
            for making in makings:
                making.abort(f"{type(error).__name__}: {error}")
            raise
        return makings

    def _metadata(self, part: layouts.Part) -> dict[str, str]:
        made_by = {
            "engine": f"a trainer with vLLM {importlib.metadata.version('vllm')}",
            "pid": os.getpid(),
            "model": str(self._config.model_config.model),
        }
        configuration = part.metadata.get(differences.CONFIGURATION)
        kept = {} if configuration is None else {differences.CONFIGURATION: configuration}
        return {**kept, publication.MADE_BY: json.dumps(made_by)}

    def _retire_old(self) -> None:
        """Retires old versions. A failure raises no error, since the new version is ready: it is
        tried again next time, unless the old version is gone."""
        for version in self._made[: -self._keep_last]:
            try:
                self._client.retire(version)
            except errors.NotFound:
                pass
            except errors.Error as error:
                log.warning("gpuwm: an older version stays in memory: %s", error)
                continue
            self._made.remove(version)


def _config(model: str, engine_args: dict[str, Any]) -> Any:
    """vLLM's configuration of the engines. Raises Unsupported."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    found = EngineArgs(model=model, **engine_args).create_engine_config()
    refusals.check(found, found.model_config)
    stand_in.check(found)
    return found


def _passes(tensors: Any, ranks: int) -> Callable[[], Iterable[tuple[str, Tensor]]]:
    """A function that makes a pass over the tensors, for each rank. Raises Invalid."""
    if callable(tensors) and not isinstance(tensors, Mapping):
        found: Callable[[], Iterable[tuple[str, Tensor]]] = tensors
        return found
    if isinstance(tensors, Mapping):
        return tensors.items
    if not isinstance(tensors, Iterable):
        raise errors.Invalid(
            f"a {type(tensors).__name__} as the trainer's tensors",
            "give a mapping, pairs of names and tensors, or a function that returns such pairs",
        )
    if ranks > 1 and isinstance(tensors, Iterator):
        raise errors.Invalid(
            f"a {type(tensors).__name__} gives its tensors once, and each of {ranks} ranks needs "
            "them",
            "give a mapping, a list, or a function that returns the pairs",
        )
    return lambda: tensors
