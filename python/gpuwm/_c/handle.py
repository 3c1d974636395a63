"""A mapping of the C library that lives as long as something in Python needs it."""

from __future__ import annotations

import ctypes
import errno
import functools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from . import abi, dtypes, lib
from .selection import Selection

if TYPE_CHECKING:
    from .._mapping import Mapping


class TensorInfo(NamedTuple):
    """A tensor's description. shape and strides count elements; nbytes counts bytes.

    tied: if several names are at the same place, the first of them in the order of bytes; None for
    that one itself and for a tensor that is alone.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    tied: str | None

    def is_contiguous(self) -> bool:
        """Whether the tensor is dense, with the last dimension fastest."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True


class Table(NamedTuple):
    """All tensors of a version: the library's structures in order, and the position of each
    name."""

    array: ctypes.Array[abi.Tensor]
    positions: dict[str, int]
    infos: list[TensorInfo]

    def place(self, name: str) -> str:
        """The first of the names that are at the same place."""
        info = self.infos[self.positions[name]]
        return info.tied or info.name


class Where:
    """The version that tensors belong to, for processes and objects that get these tensors. It can
    name the version when the mapping is gone, and after a fork. keeps: a mapping that must live as
    long as this object, or None."""

    keeps: Handle | None = None

    def __init__(self, handle: Handle) -> None:
        self.look(handle)

    def look(self, handle: Handle) -> None:
        info = handle.version
        self.socket: str | None = handle.socket
        self.id: str = lib.text(info.id)
        self.label: str = f"{lib.text(info.model)}@{lib.text(info.tag)}"
        self.device: str = lib.text(info.device)
        self.rank: int = info.rank

    def is_same(self, other: Where) -> bool:
        """Whether both are the memory of one version, even if it is mapped twice."""
        mine, others = (self.id, self.device, self.rank), (other.id, other.device, other.rank)
        return mine == others


_TENSOR_BYTES = ctypes.sizeof(abi.Tensor)


class Handle:
    """Owns a `struct gpuwm_mapping`. When it is collected, it gives the mapping up (gpuwm_drop):
    the memory stays for as long as any tensor that was made from it. At the interpreter's exit it
    does nothing.

    - socket: of the gpuwmd that has the version.
    - follows: the name that was attached, or switched to last.
    - selection: the tensors that were attached.
    - private_writes: writes go to copies of this process's own.
    """

    mapping: weakref.ref[Mapping] | None = None  # the Mapping that was made of it last

    def __init__(
        self,
        pointer: int,
        socket: str | None,
        follows: str,
        selection: Selection | None = None,
        private_writes: bool = False,
    ) -> None:
        self.library: ctypes.CDLL = lib.load()
        self._there = [pointer]  # empty after a detach
        self._uses: list[None] = []  # one entry for each call that is running
        self.socket = socket
        self.follows: str = follows
        self.selection: Selection = selection or Selection()
        self.private_writes = private_writes
        self._table: Table | None = None
        self._give_up = weakref.finalize(self, self.library.gpuwm_drop, pointer)
        self._give_up.atexit = False

    def use(self) -> _Use:
        """`with handle.use() as pointer:` keeps the mapping during calls, and while their results
        are read."""
        return _Use(self._there, self._uses)

    @property
    def version(self) -> abi.VersionInfo:
        with self.use() as pointer:
            info = self.library.gpuwm_mapping_version(pointer).contents
            return abi.VersionInfo.from_buffer_copy(info)

    @functools.cached_property
    def device(self) -> str:
        """The device, "host" or a UUID. A switch keeps it."""
        return lib.text(self.version.device)

    def detach(self) -> None:
        """Unmaps, and gives the lease back. If tensors live, or another thread is in a call on it,
        raises Busy and does nothing."""
        try:
            pointer = self._there.pop()  # from here on no call can begin
        except IndexError:
            return
        if self._uses:
            self._there.append(pointer)
            raise errors.Busy(
                "another thread is in a call on the mapping", "close it when that has returned"
            )
        result: int = self.library.gpuwm_detach(pointer)
        error = lib.last_error(result) if result < 0 else None
        if error is None or error.code not in (errno.EBUSY, errno.ECHILD):
            self._give_up.detach()
        else:
            self._there.append(pointer)
        if error is not None:
            raise error

    def table(self) -> Table:
        if self._table is None:
            with self.use() as pointer:
                self._table = _table(self.library, pointer)
        return self._table

    @functools.cached_property
    def where(self) -> Where:
        return Where(self)

    def forget(self) -> None:
        """Forgets the table of tensors: the mapping has another version now."""
        self._table = None
        self.where.look(self)

    def tensor(self, position: int) -> Any:
        """The library's structure of a tensor, for its calls."""
        return ctypes.byref(self.table().array, position * _TENSOR_BYTES)

    def exchange(self, other: Handle) -> None:
        """Exchanges the sockets and followed names of both, after the library has exchanged their
        versions and the clients that hold their leases."""
        self.socket, other.socket = other.socket, self.socket
        self.follows, other.follows = other.follows, self.follows


class _Use:
    """Keeps a mapping while the block runs: `detach` raises Busy."""

    __slots__ = ("_there", "_uses")

    def __init__(self, there: list[int], uses: list[None]) -> None:
        self._there = there
        self._uses = uses

    def __enter__(self) -> int:
        """Raises Closed if the mapping was detached."""
        self._uses.append(None)
        try:
            return self._there[-1]
        except BaseException as error:
            self._uses.pop()
            if not isinstance(error, IndexError):
                raise  # Ctrl-C
            raise errors.Closed("the mapping was closed", "attach anew") from None

    def __exit__(self, *_: object) -> None:
        self._uses.pop()


def _table(library: ctypes.CDLL, pointer: int) -> Table:
    count: int = library.gpuwm_tensor_count(pointer)
    array = (abi.Tensor * count)()
    lib.check(library.gpuwm_tensors(pointer, array))
    infos = infos_of(array)
    return Table(array, {info.name: i for i, info in enumerate(infos)}, infos)


def infos_of(array: ctypes.Array[abi.Tensor]) -> list[TensorInfo]:
    """Descriptions of all tensors of a version."""
    first: dict[tuple[int, int, int], str] = {}
    return [_info(tensor, first) for tensor in array]


def _info(tensor: abi.Tensor, first: dict[tuple[int, int, int], str]) -> TensorInfo:
    name: str = tensor.name.decode()
    code, ndim, nbytes = tensor.dtype, tensor.ndim, tensor.bytes
    earliest = first.setdefault((tensor.segment, tensor.offset, code), name) if nbytes else name
    return TensorInfo(
        name,
        dtypes.of(code).name,
        tuple(tensor.shape[:ndim]),
        tuple(tensor.strides[:ndim]),
        nbytes,
        None if earliest is name else earliest,
    )
