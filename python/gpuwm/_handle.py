"""A mapping of the C library, as long as something in Python needs it."""

from __future__ import annotations

import ctypes
import errno
import functools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _abi, _lib, dtypes, errors
from .selection import Selection

if TYPE_CHECKING:
    from .mapping import Mapping


class TensorInfo(NamedTuple):
    """What a tensor is. shape and strides count elements, nbytes bytes.

    tied: the first name (in the order of bytes) of those at the same place, where it is another's.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    tied: str | None

    def is_contiguous(self) -> bool:
        """Dense, the last dimension fastest."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True


class Table(NamedTuple):
    """All tensors of a version: the library's structures, in order, and where each name is."""

    array: ctypes.Array[_abi.Tensor]
    positions: dict[str, int]
    infos: list[TensorInfo]

    def place(self, name: str) -> str:
        """The first name of those at the same place."""
        info = self.infos[self.positions[name]]
        return info.tied or info.name


class Where:
    """The version that tensors are of, for those they are passed on to: says so also when the
    mapping is gone, and after a fork. keeps: None, or the mapping that lives as long as this."""

    keeps: Handle | None = None

    def __init__(self, handle: Handle) -> None:
        self.look(handle)

    def look(self, handle: Handle) -> None:
        info = handle.version
        self.socket = handle.socket
        self.id = _lib.text(info.id)
        self.label = f"{_lib.text(info.model)}@{_lib.text(info.tag)}"
        self.device = _lib.text(info.device)
        self.rank: int = info.rank

    def is_same(self, other: Where) -> bool:
        """Whether both are one version's memory, mapped once or twice."""
        mine, others = (self.id, self.device, self.rank), (other.id, other.device, other.rank)
        return mine == others


_TENSOR_BYTES = ctypes.sizeof(_abi.Tensor)


class Handle:
    """Owns a `struct gpuwm_mapping`. Its end gives the handle up (gpuwm_drop): the memory stays
    for as long as any tensor that was made from it. Nothing happens at the interpreter's exit.

    socket: of the gpuwmd that has it. follows: what was attached, or switched to last. selection:
    the tensors that were attached. private_writes: what is written is this process's own."""

    mapping: weakref.ref[Mapping] | None = None  # the last that was made of it

    def __init__(
        self,
        pointer: int,
        socket: str | None,
        follows: str,
        selection: Selection | None = None,
        private_writes: bool = False,
    ) -> None:
        self.library = _lib.load()
        self._there = [pointer]  # nothing once it was detached
        self._uses: list[None] = []  # one for each call that is being made
        self.socket = socket
        self.follows = follows
        self.selection = selection or Selection()
        self.private_writes = private_writes
        self._table: Table | None = None
        self._give_up = weakref.finalize(self, self.library.gpuwm_drop, pointer)
        self._give_up.atexit = False

    def use(self) -> _Use:
        """`with handle.use() as pointer:` for calls, and to read what they point to."""
        return _Use(self._there, self._uses)

    @property
    def version(self) -> _abi.VersionInfo:
        with self.use() as pointer:
            info = self.library.gpuwm_mapping_version(pointer).contents
            return _abi.VersionInfo.from_buffer_copy(info)

    @functools.cached_property
    def device(self) -> str:
        """ "host" or a UUID: a switch stays on it."""
        return _lib.text(self.version.device)

    def detach(self) -> None:
        """Unmaps and gives the lease back. Busy: tensors live, or another thread is in a call on
        it, and nothing was done."""
        try:
            pointer = self._there.pop()  # after which no call begins
        except IndexError:
            return
        if self._uses:
            self._there.append(pointer)
            raise errors.Busy(
                "another thread is in a call on the mapping", "close it when that has returned"
            )
        result: int = self.library.gpuwm_detach(pointer)
        error = _lib.last_error(result) if result < 0 else None
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
        """What was told of the tensors is another version's now."""
        self._table = None
        self.where.look(self)

    def tensor(self, position: int) -> Any:
        """The library's structure of a tensor, to pass on."""
        return ctypes.byref(self.table().array, position * _TENSOR_BYTES)

    def trade(self, other: Handle) -> None:
        """The library exchanged the versions of both, and the clients that hold their leases."""
        self.socket, other.socket = other.socket, self.socket
        self.follows, other.follows = other.follows, self.follows


class _Use:
    """While it lasts a mapping is there: `detach` refuses."""

    __slots__ = ("_there", "_uses")

    def __init__(self, there: list[int], uses: list[None]) -> None:
        self._there = there
        self._uses = uses

    def __enter__(self) -> int:
        """Closed: it was detached."""
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
    array = (_abi.Tensor * count)()
    _lib.check(library.gpuwm_tensors(pointer, array))
    first: dict[tuple[int, int, int], str] = {}
    infos = [_info(tensor, first) for tensor in array]
    return Table(array, {info.name: i for i, info in enumerate(infos)}, infos)


def _info(tensor: _abi.Tensor, first: dict[tuple[int, int, int], str]) -> TensorInfo:
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
