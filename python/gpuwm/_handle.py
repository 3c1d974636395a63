"""A mapping of the C library, as long as something in Python needs it."""

from __future__ import annotations

import ctypes
import errno
import functools
import weakref
from typing import Any, NamedTuple

from . import _abi, _lib, dtypes, errors


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


class Where:
    """The version that tensors are of, for those they are passed on to: says so also when the
    mapping is gone, and after a fork. keeps: None, or the mapping that lives as long as this."""

    keeps: Handle | None = None

    def __init__(self, handle: Handle) -> None:
        self.socket = handle.socket
        self.look(handle)

    def look(self, handle: Handle) -> None:
        info = handle.version
        self.id = _lib.text(info.id)
        self.label = f"{_lib.text(info.model)}@{_lib.text(info.tag)}"
        self.device = _lib.text(info.device)
        self.rank: int = info.rank


_TENSOR_BYTES = ctypes.sizeof(_abi.Tensor)


class Handle:
    """Owns a `struct gpuwm_mapping`. Its end gives the handle up (gpuwm_drop): the memory stays
    for as long as any tensor that was made from it. Nothing happens at the interpreter's exit."""

    def __init__(self, pointer: int, socket: str | None = None) -> None:
        self.library = _lib.load()
        self._pointer = pointer
        self.socket = socket  # of the gpuwmd that has it
        self._table: Table | None = None
        self._give_up = weakref.finalize(self, self.library.gpuwm_drop, pointer)
        self._give_up.atexit = False

    @property
    def pointer(self) -> int:
        if not self._pointer:
            raise errors.Closed("the mapping was closed", "attach anew")
        return self._pointer

    @property
    def version(self) -> _abi.VersionInfo:
        info: _abi.VersionInfo = self.library.gpuwm_mapping_version(self.pointer).contents
        return info

    @functools.cached_property
    def device(self) -> str:
        """ "host" or a UUID: a switch stays on it."""
        return _lib.text(self.version.device)

    def detach(self) -> None:
        """Unmaps and gives the lease back. Busy: tensors live, and nothing was done."""
        if not self._pointer:
            return
        result: int = self.library.gpuwm_detach(self._pointer)
        error = _lib.last_error(result) if result < 0 else None
        if error is None or error.code not in (errno.EBUSY, errno.ECHILD):
            self._give_up.detach()
            self._pointer = 0
        if error is not None:
            raise error

    def table(self) -> Table:
        if self._table is None:
            self._table = _table(self.library, self.pointer)
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
