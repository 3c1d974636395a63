"""Takes leases on versions: maps a version, looks at one, or waits until one can be leased. A lease
may be parked: its mapping gives the memory back for a while."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from . import errors
from ._c import abi, devices, lib, threads
from ._c.handle import Handle, TensorInfo, infos_of
from ._c.selection import Selection
from ._client import Client
from ._connection import connect, for_options
from ._shown import logs
from ._shown.progress import Hook, Operation, checked
from ._shown.watch import Concerns, watched
from ._version import Version, version_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

Writes = Literal["refused", "private"]
Transport = Literal["fd", "cuda_ipc"]
TRANSPORTS = ("fd", "cuda_ipc")  # numbered as in enum gpuwm_transport


class Options(TypedDict, total=False):
    """Options of `gpuwm.attach`, which says what they are."""

    device: Any
    rank: int
    wait: float | None
    layers: Iterable[int] | None
    glob: str | Sequence[str] | None
    key: lib.Key | None
    owner: lib.Owner | None
    look: bool
    transport: Transport
    progress: Hook | None
    client: Client | None


class MapOptions(Options, total=False):
    """And those that copies do not have."""

    writes: Writes
    address: str | None
    room: int


def take(ref: str, **options: Unpack[MapOptions]) -> Handle:
    """Takes a lease on a version and maps it: what `gpuwm.attach` does before it makes a
    Mapping."""
    lib.known(options, MapOptions, "attach")
    selection = Selection(options.get("layers"), options.get("glob"))
    writes = options.get("writes", "refused")
    lib.choice(writes, "writes", ("refused", "private"))
    encoded = lib.ref_bytes(ref)
    device = devices.named(options.get("device"))
    wanted = attach_options(
        None,  # set below: resolving it may take a client
        options.get("rank", 0),
        options.get("wait"),
        options.get("key"),
        options.get("owner"),
    )
    wanted.private_writes = writes == "private"
    wanted.look = options.get("look", False)
    if "transport" in options:
        wanted.transport = transport_number(options["transport"])
    if options.get("address") is not None:
        wanted.announce = lib.maybe_text(options["address"], "address")
    wanted.room = lib.count(options.get("room", 0), "room", ROOM_MAX)
    progress = checked(options.get("progress"))
    client = for_options(wanted, options.get("client"))
    if device is not None:
        wanted.device = lib.maybe_text(devices.resolve(device, client), "device")
    call = functools.partial(_take, client, ref, encoded, wanted, selection)
    handle = waited(call, ref, client, wanted, progress)
    if logs.attach.isEnabledFor(logging.INFO):
        version = version_of(handle.version)
        logs.attach.info("attached %s (%s) on %s", version, version.id, version.device)
    return handle


def waited(
    call: Callable[[], T],
    ref: str,
    client: Client,
    options: abi.AttachOptions,
    progress: Hook | None = None,
) -> T:
    """Makes a call with these options, and tells of the wait that they ask for. progress: as of
    attach."""
    if options.wait_ms == 0:
        return threads.wait_for(call)
    with Operation("wait", ref, progress) as told:
        return watched(call, told, client, functools.partial(_jobs_of, client.socket, ref))


def _jobs_of(socket: str | None, ref: str) -> Concerns:
    """What tells the jobs that make the version, or bring it back to its devices, by their
    events."""
    model, _, tag = ref.partition("@")
    with connect(socket) as client:
        listed = client.list(model) if tag else client.list()
    ids = {each["version"] for each in listed["aliases"] if _is_alias(each, model, tag)}
    for row in listed["versions"]:
        if row["version"] in {*ids, ref}:
            model, tag = row["model"], row["tag"]
    return lambda event: (event.data["model"], event.data["tag"]) == (model, tag)


def _is_alias(row: dict[str, Any], model: str, tag: str) -> bool:
    return bool(row["model"] == model and row["alias"] == (tag or "current"))


def transport_number(transport: str) -> int:
    lib.choice(transport, "transport", TRANSPORTS)
    return TRANSPORTS.index(transport)


def attach_options(
    device: str | None,
    rank: int,
    wait: float | None,
    key: lib.Key | None,
    owner: lib.Owner | None,
) -> abi.AttachOptions:
    options = abi.AttachOptions(
        size=ctypes.sizeof(abi.AttachOptions),
        rank=lib.count(rank, "rank", lib.UINT32_MAX),
        wait_ms=lib.milliseconds(wait, "wait"),
    )
    if device is not None:
        options.device = lib.text_bytes(device, "device")
    if key is not None:
        options.key, options.key_count = lib.key_fields(key)
    if owner is not None:
        uids, options.owner_uid_count, options.owner_operator = lib.owner_fields(owner)
        options.owner_uids = uids
    return options


def _take(
    client: Client, ref: str, encoded: bytes, options: abi.AttachOptions, selection: Selection
) -> Handle:
    library = lib.load()
    out = ctypes.c_void_p()
    if not selection.is_all:
        encoded = _select(client, ref, encoded, options, selection)
    lib.check(
        library.gpuwm_attach(client._held(), encoded, ctypes.byref(options), ctypes.byref(out))
    )
    private = options.private_writes
    return Handle(out.value or 0, client.socket, ref, selection, private)


def _select(
    client: Client, ref: str, encoded: bytes, options: abi.AttachOptions, selection: Selection
) -> bytes:
    """Sets the globs. Only the version's index says which layers there are: with layers, returns
    the id of the version whose index was read, for the rest of the call."""
    names: list[str] = []
    if selection.layers:
        # Of the mapping, not of handles, which need no copy.
        announced, options.announce = options.announce, None
        transport, options.transport = options.transport, 0
        room, options.room = options.room, 0
        began = time.monotonic()
        version, infos = _look(client, ref, options)
        options.wait_ms = lib.left(options.wait_ms, began)
        options.announce = announced
        options.transport = transport
        options.room = room
        encoded = lib.ref_bytes(version.id)
        names = [info.name for info in infos]
    options.globs, options.glob_count = lib.sequence(selection.globs(names), "glob")
    return encoded


def look(
    ref: str, device: str, rank: int, wait: float | None, client: Client
) -> tuple[Version, list[TensorInfo]]:
    """One part of a version, and descriptions of its tensors. It takes a lease for the time of the
    call, and maps nothing. The arguments and errors are those of attach."""
    options = attach_options(device, rank, wait, None, None)
    return threads.wait_for(functools.partial(_look, client, ref, options))


def _look(client: Client, ref: str, options: abi.AttachOptions) -> tuple[Version, list[TensorInfo]]:
    library = lib.load()
    with _handles(client, ref, options) as handles:
        array = (abi.Tensor * library.gpuwm_handles_tensor_count(handles))()
        for position, tensor in enumerate(array):
            lib.check(library.gpuwm_handles_tensor_at(handles, position, ctypes.byref(tensor)))
        return version_of(library.gpuwm_handles_version(handles).contents), infos_of(array)


@contextlib.contextmanager
def _handles(client: Client, ref: str, options: abi.AttachOptions) -> Iterator[ctypes.c_void_p]:
    """Takes a lease on a version and does not map it."""
    library = lib.load()
    out = ctypes.c_void_p()
    lib.check(
        library.gpuwm_get_handles(
            client._held(), lib.ref_bytes(ref), ctypes.byref(options), ctypes.byref(out)
        )
    )
    try:
        yield out
    finally:
        library.gpuwm_handles_release(out)


def wait_until_ready(ref: str, like: Handle, wait: float) -> None:
    """Waits for a version, on the device and of the rank of another mapping, for `wait` seconds.
    Ctrl-C ends the wait. Raises the errors of attach."""
    with like.use() as pointer:
        result = like.library.gpuwm_mapping_check(pointer)
    if result == -errno.ECHILD:  # a lease that was lost does not matter here
        raise lib.last_error(result)
    began = time.monotonic()
    client = connect(like.socket, wait=wait)
    options = attach_options(like.device, like.version.rank, wait, None, None)
    options.wait_ms = lib.left(options.wait_ms, began)
    _wait_for(client, ref, options)


def wait_for_parts(version: Version, client: Client, wait: float) -> None:
    """Waits until all parts of a version are there; this process has committed one of them. wait:
    in seconds. Raises the error of another part that failed, and TimedOut. It uses a connection of
    its own: calls on one client wait for each other, and the other parts may use the same
    client."""
    began = time.monotonic()
    other = connect(client.socket, admin=client.admin, timeout=wait)
    options = attach_options(version.device, version.rank, wait, None, None)
    options.wait_ms = lib.left(options.wait_ms, began)
    try:
        _wait_for(other, version.id, options)
    except errors.Quota:
        return  # gpuwmd checks the quota only when the version is ready


def _wait_for(client: Client, ref: str, options: abi.AttachOptions) -> None:
    def call() -> None:
        with _handles(client, ref, options):
            pass

    waited(call, ref, client, options)


# ---- parking ------------------------------------------------------------------------------------

ROOM_MAX = 1 << 50
ROOM_AS_BEFORE = lib.UINT64_MAX
GROUP_MAX = 256  # mappings that are unparked together

# Ctrl-C is noticed between two questions, and nothing goes on behind the caller's back after it.
QUESTION_MS = round(threads.UNSEEN_S * 1000)


def park(handle: Handle, room: int = 0) -> None:
    """Takes the memory of the version out of this process, and keeps its addresses: models that
    were bound, tensors, arrays and captured CUDA graphs are true again after `unpark`. Until then
    nobody may read them: on host a read ends the process with SIGSEGV, in a kernel with an illegal
    address. gpuwmd may let the version leave its device meanwhile, for as long as something else
    needs the room, but does not free it. A mapping that is parked already is fine.

    - room: the bytes of the mapping's room (`attach(room=)`) that the process keeps on the device
      while it is parked. It has freed the rest before the call.

    Call it at a quiet point: it waits until the device is idle. Private copies stay. If another
    mapping of this process has the same version, the memory goes when the last one has parked.

    Raises Busy (a CUDA stream is being captured), Invalid (the version does not move: it has no
    name, or is cached; or `room` is more than the mapping has), Unsupported (`writes="private"`,
    transport="cuda_ipc", or gpuwmd is older) or Lost; the mapping is as before then.
    """
    kept = lib.count(room, "room", ROOM_MAX)
    with handle.use() as pointer:
        lib.check(handle.library.gpuwm_park(pointer, kept))
    logs.park.info("parked %s", version_of(handle.version))


def unpark(
    handle: Handle,
    wait: float | None = None,
    room: int | None = None,
    together: tuple[str, int] | None = None,
) -> None:
    """Maps the memory again, at the same addresses.

    - wait: seconds to wait if the version has left its device, and has to come back. None: do not
      wait; the way back has begun all the same. Ctrl-C ends the wait.
    - room: the bytes that the process is going to take on the device besides, once the call has
      returned. gpuwmd grants the version and the room together, or neither. None: as many as when
      the mapping was awake last. A mapping that is not parked gets the other room.
    - together: a name, and how many mappings call with it, each in whatever process. gpuwmd grants
      nothing to any of them before all have asked, and then everything to all of them: so the ranks
      of two engines never wait for each other. An error of one is the error of all. The name is
      one of this user's, and no other engine of the user has it.

    Raises TimedOut, NotFound (the version was retired after it had left its device), Damaged,
    NoDevice, NoRoom, Quota or Lost; the mapping stays parked then.
    """
    left = lib.milliseconds(wait, "wait")
    asked = ROOM_AS_BEFORE if room is None else lib.count(room, "room", ROOM_MAX)
    name, mappings = (None, 0) if together is None else _group(*together)
    began = time.monotonic()
    while True:
        now = min(left, QUESTION_MS) if left >= 0 else QUESTION_MS
        try:
            with handle.use() as pointer:
                lib.check(handle.library.gpuwm_unpark_together(pointer, name, mappings, asked, now))
        except errors.TimedOut:
            if left >= 0 and (time.monotonic() - began) * 1000 >= left:
                raise
        else:
            break
    logs.park.info("unparked %s after %.3f s", version_of(handle.version), time.monotonic() - began)


def _group(name: str, mappings: int) -> tuple[bytes, int]:
    if lib.count(mappings, "mappings of together", GROUP_MAX) == 0:
        raise errors.Invalid("together: of 0 mappings", "a name, and 1 to 256 mappings")
    return lib.text_bytes(name, "name of together"), mappings


def is_parked(handle: Handle) -> bool:
    with handle.use() as pointer:
        found: bool = handle.library.gpuwm_mapping_parked(pointer)
    return found


def room_of(handle: Handle) -> int:
    with handle.use() as pointer:
        found: int = handle.library.gpuwm_mapping_room(pointer)
    return found
