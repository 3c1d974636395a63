"""Makes a version of what this process has, and the process's memory the version's."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, overload

from .. import _client as clients
from .. import _connection, errors
from .._c import devices, dtypes, lib
from .._lease import wait_for_parts
from .._mapping import Mapping as Attached
from .._mode import is_local
from .._shown import logs
from .._shown.progress import Hook, Operation
from .._version import Version
from .making import FREED_BYTES, Files, Making, What, cached, files_of, metadata_of, options_of
from .parts import Gathered, Part
from .sources import gather

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import Tensor
    from torch.nn import Module
    from typing_extensions import Unpack

    DTypeLike = torch.dtype | numpy.dtype[Any] | type[numpy.generic] | str


class Options(TypedDict, total=False):
    """Options of `publish`, which says what they are, and of `gpuwm.image.publish`."""

    alias: str | None
    key: lib.Key | None
    owner: lib.Owner | None
    files: Files | None
    metadata: Mapping[str, str] | None
    ttl: float | None
    keep_last: int | None
    companion_of: str | None
    device: Any
    rank: int
    world: int
    join: str | None
    join_uids: Sequence[int]
    join_gids: Sequence[int]
    announce: Callable[[str], object] | None
    progress: Hook | None
    client: clients.Client | None
    wait: float | None


class BindOptions(Options, total=False):
    """And those with bind=True."""

    private: str | Sequence[str]


class CopyOptions(Options, total=False):
    """And those with bind=False."""

    dtype: DTypeLike | None


class AllOptions(BindOptions, CopyOptions, total=False):
    pass


@overload
def publish(
    source: Module | Mapping[str, Any],
    name: str | None = None,
    *,
    bind: Literal[True] = True,
    **options: Unpack[BindOptions],
) -> Attached: ...


@overload
def publish(
    source: Module | Mapping[str, Any],
    name: str,
    *,
    bind: Literal[False],
    **options: Unpack[CopyOptions],
) -> Version: ...


def publish(
    source: Module | Mapping[str, Any],
    name: str | None = None,
    *,
    bind: bool = True,
    **options: Unpack[AllOptions],
) -> Attached | Version:
    """Makes a version of a model's parameters and persistent buffers, or of a dict's tensors. What
    modules return from `get_extra_state` goes into a file of the version, and `bind` gives it back.

    With bind (the default) the tensors move into the version's memory one by one, and their old
    memory is freed. So no more is needed at any time than the model and 2 GiB (or twice its largest
    tensor, if that is more). Afterwards a model is as `Mapping.bind` leaves one: parameters are
    shared and read-only, buffers and `private` names are private. A dict gets shared tensors in
    place of its own. Returns the mapping. With bind=False everything is copied, the source stays as
    it is, and publish returns the version.

    - source: a torch module, or a dict of names with torch tensors or NumPy arrays (arrays are
      always copied). Several names of one tensor, and tensors that are the same memory, are stored
      once. A permutation of a dense tensor keeps its strides; a tensor with gaps is written without
      them.
    - name: "model@tag". None: the version has no name. It is freed when no process has it attached
      any more, this one included. It has one rank and no alias, and bind must be True.
    - alias: gpuwmd moves it to the version when the version is ready.
    - key: fields that attaching processes may ask to be equal. Values are converted to texts.
    - owner: as in `attach`, for versions that the mapping is switched to.
    - files: paths, or contents by name. metadata: texts by name.
    - ttl, keep_last: with either, the version is cached under its name, which is a key. It never
      becomes `current` by itself. As soon as it is retired, another version may have its name, even
      while processes have this one. gpuwmd retires it `ttl` seconds after it has become ready (at
      most 30 days; math.inf: never). When it becomes ready, gpuwmd retires this user's cached
      versions of the model that were begun before it, except for the last `keep_last` - 1
      (keep_last: at most 1024). While an alias names a version, it stays.
    - companion_of: the id of a ready version of the same model. The version is cached, and gpuwmd
      retires it when that version is freed. All companions of one have at most 1 GiB together.
    - device: "host", a UUID, "cuda:N"… None: the device of the tensors.
    - dtype: with bind=False: float16, bfloat16, float32 and float64 tensors are stored in this one
      of these dtypes (torch.bfloat16, numpy.float16, "bfloat16"), rounded when they are copied.
      Other tensors keep theirs.
    - rank, world: this is one of `world` parts.
    - join, announce: the first part begins the publish. Before anything is copied it passes the
      publish's id to `announce`, which gives the id to the other parts, and they `join` it.
    - join_uids, join_gids: with the first part: the users and groups (at most 16 of each, by
      number) who may join, besides the user who began. For everybody else there is no such publish
      (NotFound).
    - wait: how many seconds to wait if a quota of this user has no room, and versions of the user
      that are being freed will make room: gpuwmd frees nothing in its first 10 seconds. If wait is
      not given, publish raises Quota at once.
      With bind=False also: how many seconds to wait for the other parts (not given: for ever).
      After TimedOut this part stays. None: return when this part is committed, for a process that
      makes several parts in one thread. Then nobody knows yet whether the version will be ready,
      and it fails if the connection of `client`, which must be given, ends before all parts have
      begun.
    - progress: gets a gpuwm.Progress after each tensor. None: what `gpuwm.set_progress` says.
    - client: None: a connection of its own.

    All parts return when the version is ready. If one fails, or ends before its commit, all fail.
    So each part needs a thread or a process of its own. Nobody else may use the model meanwhile.

    If publish fails or is interrupted before the commit, there is no version, and the model is as
    usable as before; tensors that had moved stay where they are, in memory of this process alone.
    Ctrl-C does not end a commit, only the wait for it.

    Raises Unsupported (it lists the tensors that can't be published, and why: quantised,
    distributed, sparse, without memory, a dtype that versions don't have, expanded; and all that
    the model's own state_dict() has besides), Exists (the
    tag or rank is taken), NoRoom, Refused (this user is no publisher), Quota, Damaged, and
    Cancelled and Disconnected (publish again). It warns if the version is ready, but the alias
    could not be moved, or there is no lease.
    """
    lib.known(options, AllOptions, "publish")
    if name is None and not bind:
        raise errors.Invalid(
            "a version without a name would be freed at once: with bind=False nobody has it",
            "give it a name, or publish with bind=True",
        )
    device, client = options.get("device"), options.get("client")
    private, wait = options.get("private", ()), options.get("wait", math.inf)
    world, announce = options.get("world", 1), options.get("announce")
    stored = _stored(options.get("dtype"), bind)
    gathered = gather(source, bind, _private_names(source, private) if bind else set(), stored)
    contents = files_of(options.get("files"))
    for file in gathered.files.keys() & contents.keys():
        raise errors.Invalid(f"files= has {file}", "that is the name of the modules' extra states")
    contents |= gathered.files
    if announce is not None:
        lib.function(announce, "announce", "a function that is told the publish's id")
    texts = metadata_of(options.get("metadata"))
    what = What(
        name=name,
        device=devices.named(device) or devices.HOST,
        rank=options.get("rank", 0),
        world=world,
        join=options.get("join"),
        alias=options.get("alias"),
        key=options.get("key"),
        owner=options.get("owner"),
        join_uids=options.get("join_uids", ()),
        join_gids=options.get("join_gids", ()),
        cached=cached(options.get("ttl"), options.get("keep_last")),
        wait_ms=lib.milliseconds(options.get("wait"), "wait"),
        companion_of=options.get("companion_of"),
    )
    specs = [part.spec for part in gathered.parts]
    options_of(what, specs)  # raises before anything is connected
    waits = lib.milliseconds(wait, "wait") != 0
    if not waits and not bind and world > 1 and client is None:
        raise errors.Invalid(
            f"wait={wait!r} without client=: the version fails if the connection ends before all "
            "parts have begun",
            "give a client that lives until then: client=gpuwm.connect()",
        )
    told = Operation("publish", name, options.get("progress"))
    client = _connection.given(client) or _connection.connect()
    making = Making(client, what._replace(device=_device(gathered, device, bind, client)), specs)
    try:
        with told:
            if announce is not None:
                announce(making.id)
            making.metadata(texts)
            for file, content in contents.items():
                making.file(file, content)
            with _outside_inference():
                _fill(making, gathered.parts, told)
            del gathered
            told.tell("committing")
            if not bind:
                version = making.commit()
                if waits and version.world > 1:
                    assert wait is not None
                    wait_for_parts(version, client, wait)
                return _logged(version)
            mapping = making.commit_attached()
    except BaseException as error:
        making.abort(f"{type(error).__name__}: {error}")
        raise
    _logged(mapping.version)
    with _outside_inference():
        _bind(mapping, source, private)
    return mapping


def share(
    tensor: Tensor,
    name: str | None = None,
    *,
    ttl: float | None = None,
    keep_last: int | None = None,
    device: Any = None,
    client: clients.Client | None = None,
) -> Tensor:
    """Moves a torch tensor into a version of its own, and returns it from there: read-only, the
    same in all processes. torch's share_memory_() does nothing for a tensor on a GPU.

    It goes through multiprocessing as a reference, and `gpuwm.ref(tensor)` is one for any other
    channel. Its old memory is freed when nothing refers to it any more.

    Without a name the version is freed when no process has the tensor any more. With a name it
    stays until it is retired, and any process gets it by `gpuwm.attach(name).torch("tensor")`.
    With $GPUWM_MODE=local the tensor is returned as it is, and goes through multiprocessing in
    torch's way.
    client: None: without a name, a client that the whole process shares. ttl and keep_last (only
    with a name), device, client and errors otherwise: as in `publish`.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        raise lib.wrong("tensor", tensor, "a tensor of torch; publish() takes others, in a dict")
    tensors: dict[str, Tensor] = {"tensor": tensor}
    if is_local():
        return tensors["tensor"]
    if name is None:  # a connection of its own would cost more than the rest
        client = client or _connection.shared()
    publish(tensors, name, ttl=ttl, keep_last=keep_last, device=device, client=client)
    return tensors["tensor"]


def _outside_inference() -> AbstractContextManager[Any]:
    """Leaves torch's inference mode: a tensor made in it could not be trained after an abort, and
    could not be swapped."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else cast(Any, torch.inference_mode(False))


def _stored(dtype: DTypeLike | None, bind: bool) -> str | None:
    if dtype is None:
        return None
    stored = dtypes.float_of(dtype)
    if bind:
        # If this failed midway, the model could not be as it was: tensors that had moved would be
        # rounded.
        raise errors.Invalid(
            "dtype= is for a copy, and with bind=True what is published becomes the version",
            "bind=False leaves it as it is; or publish model.to(dtype), without dtype=",
        )
    return stored


def _device(gathered: Gathered, device: Any, bind: bool, client: clients.Client) -> str:
    resolved = devices.resolve(gathered.device if device is None else device, client)
    moved = next((part for part in gathered.parts if part.move is not None), None)
    if moved is not None:
        there = devices.resolve(moved.device, client)
        if there != resolved:
            raise errors.Invalid(
                f"{moved.spec.name} is on {there}, and can't become memory of {resolved}",
                "move it there first, or publish with bind=False",
            )
    return resolved or devices.HOST


def _logged(version: Version) -> Version:
    logs.publish.info(
        "published %s (%s) on %s: %d tensors, %d bytes",
        *(version, version.id, version.device, version.tensors, version.nbytes),
    )
    return version


def _fill(making: Making, parts: Sequence[Part], told: Operation) -> None:
    """Fills the memory in its own order, so that its segments are made one by one. A tied tensor
    moves with the one that has the bytes."""
    positions = {part.spec.name: position for position, part in enumerate(parts)}
    tied: dict[int, list[int]] = defaultdict(list)
    for position, part in enumerate(parts):
        if part.spec.tied_to is not None:
            tied[positions[part.spec.tied_to]].append(position)
    gpus = {part.device for part in parts} - {"cpu"}
    for device in gpus:  # waits for what is still being computed, on any stream
        sys.modules["torch"].cuda.synchronize(device)
    freed = done = 0
    total = sum(part.spec.nbytes for part in parts if part.spec.tied_to is None)
    for position in making.order():
        part = parts[position]
        if part.spec.tied_to is not None:
            continue
        # torch must give back what it freed before the next segment is made.
        if gpus and freed + part.spec.nbytes > FREED_BYTES:
            sys.modules["torch"].cuda.empty_cache()
            freed = 0
        part.write(making, position)
        for each in (position, *tied[position]):
            move = parts[each].move
            if move is not None:
                move(making, each)
                freed += part.spec.nbytes
        done += part.spec.nbytes
        told.tell("copying", done, total)


# ---- what it leaves ----------------------------------------------------------------------------


def _private_names(source: Any, private: str | Sequence[str]) -> set[str]:
    if not private:
        return set()
    lib.names(private, "private")
    if isinstance(source, Mapping):
        raise errors.Invalid("private= is for modules", "copy the dict's tensors yourself")
    from .._torch.bind import chosen
    from .._torch.places import modules_of, places

    names = {name for place in places(modules_of(source)) for name in place.names}
    return chosen(names, private, "private")


def _bind(mapping: Attached, source: Any, private: str | Sequence[str]) -> None:
    """Binds at the same addresses: no byte moves."""
    if not isinstance(source, Mapping):
        mapping.bind(source, private=private)
        return
    torch = sys.modules.get("torch")
    moved = [n for n, v in source.items() if torch is not None and isinstance(v, torch.Tensor)]
    if moved:
        shared: Any = mapping.state_dict()
        items: Any = source
        items.update((name, shared[name]) for name in moved)
