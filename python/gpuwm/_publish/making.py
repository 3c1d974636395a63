"""A version that this process makes: the library's `struct gpuwm_publish`."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import errors
from .._c import abi, devices, dtypes, lib, threads
from .._c.dlpack import capsule
from .._c.handle import Handle
from .._client import Client
from .._mapping import Mapping as Attached
from .._version import Version, version_of

T = TypeVar("T")

# The bytes of a segment. A model that is moved into gpuwm needs room for its own bytes and for one
# segment that is being filled. Smaller segments would leave more room unused at their ends, and a
# large model may have at most 252.
SEGMENT_BYTES = 1 << 30
# How much memory is freed before it is given back. With a segment and CUDA's context (0.5 to 0.7
# GiB) it is less than 2 GiB. Giving back takes torch about a millisecond.
FREED_BYTES = 256 << 20
# A tensor is never split, so segments may be half empty. If there would be more segments than this,
# each is made larger, by steps of SEGMENT_STEP.
SEGMENTS = 120
SEGMENT_STEP = 2 << 20
# gpuwmd gives memory up to this size (docs/protocol/publishing.md, Versions without a name), and
# nobody checks it: such a commit waits for nothing.
GIVEN_BYTES = 16 << 20
# How much of the reason for giving a publish up `gpuwmctl ls` shows.
REASON_CHARACTERS = 300


class Spec(NamedTuple):
    """A tensor that is to be made. shape and strides count elements. strides None: dense, with the
    last dimension fastest."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    tied_to: str | None = None

    @property
    def nbytes(self) -> int:
        row = dtypes.BY_NAME[self.dtype]
        return math.prod(self.shape) // row.elements * row.nbytes


# What gpuwmd takes of a cached version (CACHE_TTL_MS_MAX and VERSIONS_MAX of base/limits.h).
TTL_DAYS_MAX = 30
KEEP_LAST_MAX = 1024


class Cached(NamedTuple):
    """When gpuwmd retires a version that is cached under its name. Zeros: never."""

    ttl_ms: int
    keep_last: int


def cached(ttl: float | None, keep_last: int | None) -> Cached | None:
    """When gpuwmd is to retire a version that is published with these. None: neither is given, so
    the version is not cached. Raises TypeError, Invalid: before a builder's function runs, since
    gpuwmd would refuse its result."""
    if ttl is None and keep_last is None:
        return None
    milliseconds = lib.milliseconds(ttl, "ttl")
    last = 0 if keep_last is None else lib.count(keep_last, "keep_last", lib.UINT32_MAX)
    if ttl is not None and milliseconds == 0:
        raise errors.Invalid(f"ttl={ttl!r}", "seconds, or math.inf: until somebody retires it")
    if milliseconds > TTL_DAYS_MAX * 86_400_000:
        raise errors.Invalid(
            f"ttl={ttl!r} seconds: gpuwmd takes at most {TTL_DAYS_MAX} days",
            f"at most {TTL_DAYS_MAX * 86_400}, or math.inf: until somebody retires it",
        )
    if keep_last == 0:
        raise errors.Invalid("keep_last=0", "1: only this version")
    if last > KEEP_LAST_MAX:
        raise errors.Invalid(
            f"keep_last={last}: gpuwmd has at most {KEEP_LAST_MAX} versions",
            "None: as many as there is room for",
        )
    return Cached(max(milliseconds, 0), last)


class What(NamedTuple):
    """The name of a version, and where it is made. name: None: it has none. device: "host" or a
    UUID. owner: whose versions its mapping may be switched to. cached: None: it is not. wait_ms:
    how long to wait for what the user's versions that are being freed give back."""

    name: str | None
    device: str
    rank: int
    world: int
    join: str | None
    alias: str | None
    key: lib.Key | None
    owner: lib.Owner | None = None
    join_uids: Sequence[int] = ()
    join_gids: Sequence[int] = ()
    cached: Cached | None = None
    wait_ms: int = 0
    companion_of: str | None = None


class Making:
    """A version that is being made. Its memory is made when it is first needed, in the order of
    `order()`. `commit`, `commit_attached` and `abort` end it. Exports keep their memory in any
    case."""

    def __init__(self, client: Client, what: What, specs: Sequence[Spec]) -> None:
        self._library = lib.load()
        self._socket = client.socket
        self._name = what.name
        self.on_host: bool = devices.on_cpu(what.device)
        self._specs = specs
        is_small = sum(spec.nbytes for spec in specs) <= GIVEN_BYTES
        self._waits = not (what.name is None and self.on_host and is_small)
        self._pointer = self._begin(client, what)
        self._abort = self._owned()

    def _begin(self, client: Client, what: What) -> int:
        array = (abi.TensorSpec * len(self._specs))(*map(_spec, self._specs))
        options = options_of(what, self._specs)
        out = ctypes.c_void_p()
        begin = self._library.gpuwm_publish_begin
        lib.check(
            begin(client._held(), ctypes.byref(options), array, len(self._specs), ctypes.byref(out))
        )
        return out.value or 0

    @property
    def id(self) -> str:
        """The id for `join` of other parts."""
        return lib.text(self._library.gpuwm_publish_id(self._pointer))

    def order(self) -> list[int]:
        """The positions of all specs, in the order in which they lie in memory."""
        positions = (ctypes.c_size_t * max(len(self._specs), 1))()
        lib.check(self._library.gpuwm_publish_order(self._pointer, positions))
        return list(positions[: len(self._specs)])

    # ---- filling ----

    def write(self, position: int, address: int, nbytes: int) -> None:
        """Copies a whole tensor from host memory."""
        lib.check(self._library.gpuwm_publish_write(self._pointer, position, 0, address, nbytes))

    def export(self, position: int) -> Any:
        """A DLPack capsule of a tensor's memory, writable. F8_* and F4 are exported as bytes, as
        gpuwm.Tensor does."""
        out = ctypes.c_void_p()
        lib.check(self._library.gpuwm_publish_dlpack(self._pointer, position, ctypes.byref(out)))
        return capsule(out.value or 0)

    def metadata(self, texts: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in texts:
            lib.check(self._library.gpuwm_publish_metadata(self._pointer, key, value))

    def file(self, name: str, content: bytes) -> None:
        lib.check(
            self._library.gpuwm_publish_file(
                self._pointer, lib.text_bytes(name, "files"), content, len(content)
            )
        )

    # ---- its end ----

    def commit(self) -> Version:
        """Commits: the version is ready, or waits for its other parts. Raises the errors of
        gpuwm_publish_commit."""
        info = abi.VersionInfo()
        call = self._library.gpuwm_publish_commit
        _warn(self._end(lambda pointer: _said(lib.check(call(pointer, ctypes.byref(info))))))
        return version_of(info)

    def commit_attached(self) -> Attached:
        """Commits and attaches: the version is mapped where it was made."""
        call = self._library.gpuwm_publish_commit_attached

        def commit(pointer: int) -> tuple[Attached, str]:
            out = ctypes.c_void_p()
            said = _said(lib.check(call(pointer, ctypes.byref(out))))
            handle = Handle(out.value or 0, self._socket, self._name or "")
            handle.follows = self._name or lib.text(handle.version.id)
            return Attached(handle), said

        mapping, said = self._end(commit)
        _warn(said)
        return mapping

    def _end(self, call: Callable[[int], T]) -> T:
        """Calls a function that ends the publish. The call owns the publish, and goes on if nobody
        waits for it any more. After an error that leaves the publish as it was, this object has it
        again."""

        def run() -> T:
            if self._abort.detach() is None:
                raise errors.Cancelled("the publish was aborted before its commit")
            try:
                return call(self._pointer)
            except errors.Error as error:
                if error.code in (errno.EBUSY, errno.ECHILD):
                    self._abort = self._owned()
                raise

        # To hand a call to another thread and back takes a tenth of what a share takes.
        return threads.wait_for(run) if self._waits else run()

    def abort(self, reason: str) -> None:
        """Gives the version up, unless a commit took it over. Exports keep their memory and may be
        written."""
        if self._abort.detach():
            text = reason.replace("\0", " ")[:REASON_CHARACTERS].encode(errors="replace")
            self._library.gpuwm_publish_abort(self._pointer, text)

    def _owned(self) -> weakref.finalize[..., Any]:
        abort = weakref.finalize(
            self, self._library.gpuwm_publish_abort, self._pointer, b"it was forgotten"
        )
        abort.atexit = False
        return abort


def options_of(what: What, specs: Sequence[Spec]) -> abi.PublishOptions:
    """Makes the options for the C library. Raises TypeError, Invalid."""
    fields, count = lib.key_fields(what.key)
    uids, uid_count, operators = lib.owner_fields(what.owner)
    joiners = _ids(what.join_uids, "join_uids"), _ids(what.join_gids, "join_gids")
    return abi.PublishOptions(
        size=ctypes.sizeof(abi.PublishOptions),
        name=lib.maybe_text(what.name, "name"),
        device=lib.text_bytes(what.device, "device"),
        rank=lib.count(what.rank, "rank", lib.UINT32_MAX),
        world=lib.count(what.world, "world", lib.UINT32_MAX),
        join=lib.maybe_text(what.join, "join"),
        alias=lib.maybe_text(what.alias, "alias"),
        segment_bytes=_segment_bytes(specs),
        stepwise=True,
        key=fields,
        key_count=count,
        owner_uids=uids,
        owner_uid_count=uid_count,
        owner_operator=operators,
        join_uids=joiners[0],
        join_gids=joiners[1],
        join_uid_count=len(joiners[0]),
        join_gid_count=len(joiners[1]),
        cached=what.cached is not None or what.companion_of is not None,
        keep_last=what.cached.keep_last if what.cached else 0,
        ttl_ms=what.cached.ttl_ms if what.cached else 0,
        wait_ms=what.wait_ms,
        companion_of=lib.maybe_text(what.companion_of, "companion_of"),
    )


def _spec(spec: Spec) -> abi.TensorSpec:
    count = len(spec.shape)
    return abi.TensorSpec(
        lib.text_bytes(spec.name, "a tensor's name"),
        dtypes.BY_NAME[spec.dtype].code,
        count,
        (ctypes.c_uint64 * count)(*spec.shape),
        None if spec.strides is None else (ctypes.c_int64 * count)(*spec.strides),
        lib.maybe_text(spec.tied_to, "a tensor's name"),
    )


def _ids(ids: Sequence[int], name: str) -> ctypes.Array[ctypes.c_uint32]:
    try:
        found = list(ids)
    except TypeError:
        raise lib.wrong(name, ids, "numbers of users or groups") from None
    numbers = [lib.count(number, name, lib.UINT32_MAX) for number in found]
    return (ctypes.c_uint32 * len(numbers))(*numbers)


def _segment_bytes(specs: Sequence[Spec]) -> int:
    total = sum(spec.nbytes for spec in specs if spec.tied_to is None)
    step = SEGMENT_STEP * SEGMENTS
    return max(SEGMENT_BYTES, (total + step - 1) // step * SEGMENT_STEP)


def _said(result: int) -> str:
    """The message of a call that succeeded only in part."""
    if result == 0:
        return ""
    said: abi.ErrorText = lib.load().gpuwm_error().contents
    detail = lib.text(said.detail)
    return f"{lib.text(said.message)}: {detail}" if detail else lib.text(said.message)


def _warn(said: str) -> None:
    if said:
        warnings.warn(said, RuntimeWarning, stacklevel=4)


def metadata_of(texts: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    """Encodes texts for the C library. Raises TypeError, Invalid."""
    if not isinstance(texts, Mapping | None):
        raise lib.wrong("metadata", texts, "texts by name")
    return [
        (lib.text_bytes(key, "metadata"), lib.text_bytes(value, f"metadata[{key!r}]"))
        for key, value in (texts or {}).items()
    ]


# ---- files -------------------------------------------------------------------------------------

Path = str | os.PathLike[str]
_FILES = "paths, or bytes by name"
Files = Path | Iterable[Path] | Mapping[str, bytes]


def files_of(files: Files | None) -> dict[str, bytes]:
    """The contents by name. The name of a file given by its path is the last part of the path.
    Raises OSError, TypeError, and Invalid if two have the same name."""
    if files is None:
        return {}
    if isinstance(files, Mapping):
        for name in files:
            lib.text_bytes(name, "files")  # raises TypeError
        return {name: _content(name, content) for name, content in files.items()}
    paths = [files] if isinstance(files, str | os.PathLike) else files
    if not isinstance(paths, Iterable):
        raise lib.wrong("files", files, _FILES)
    found: dict[str, bytes] = {}
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise lib.wrong("files", path, _FILES)
        path = os.path.normpath(os.fsdecode(path))
        name = os.path.basename(path)
        if name in found:
            raise errors.Invalid(
                f"two files are called {name}", "give them names: files={name: bytes}"
            )
        with open(path, "rb") as file:
            found[name] = file.read()
    return found


def _content(name: str, content: bytes) -> bytes:
    try:
        return bytes(memoryview(content))
    except TypeError:
        raise lib.wrong(f"files[{name!r}]", content, "bytes") from None
