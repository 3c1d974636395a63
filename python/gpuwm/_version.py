"""What a version is, and the texts and small files that it carries."""

from __future__ import annotations

import collections.abc
import ctypes
import errno
from collections.abc import Iterator
from typing import NamedTuple

from . import errors
from ._c import abi, lib
from ._c.handle import Handle
from ._shown import tables


class Version(NamedTuple):
    """The version that is attached. nbytes: of all its segments. generation: how often the alias
    had moved by which it was attached; 0: it was not by an alias, or `layers` was given. layout,
    content: digests, 32 digits each."""

    id: str
    model: str
    tag: str
    device: str
    rank: int
    world: int
    nbytes: int
    generation: int
    tensors: int
    layout: str
    content: str

    def __str__(self) -> str:
        return f"{self.model}@{self.tag}"

    def _repr_html_(self) -> str:
        """Notebooks show this table."""
        return tables.table(("version", *self._fields), [(self, *self)])


def version_of(info: abi.VersionInfo) -> Version:
    return Version(
        lib.text(info.id),
        lib.text(info.model),
        lib.text(info.tag),
        lib.text(info.device),
        info.rank,
        info.world,
        info.bytes,
        info.generation,
        info.tensors,
        bytes(info.layout).hex(),
        bytes(info.content).hex(),
    )


def metadata_of(handle: Handle) -> dict[str, str]:
    """The texts of the version that is mapped."""
    key, value = ctypes.c_char_p(), ctypes.c_char_p()
    found: dict[str, str] = {}
    results = ctypes.byref(key), ctypes.byref(value)
    with handle.use() as pointer:
        while _is_one(handle.library.gpuwm_metadata_at(pointer, len(found), *results)):
            found[lib.text(key.value)] = lib.text(value.value)
    return found


class Files(collections.abc.Mapping[str, bytes]):
    """The small files that a version carries: names, and copies of their contents."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __getitem__(self, name: str) -> bytes:
        size = ctypes.c_uint32()
        handle = self._handle
        try:
            file = lib.text_bytes(name, "name")
        except (TypeError, errors.Invalid):
            raise KeyError(name) from None
        with handle.use() as pointer:
            data = handle.library.gpuwm_file(pointer, file, ctypes.byref(size))
            if data is None:
                raise KeyError(name)
            return ctypes.string_at(data, size.value)

    def __iter__(self) -> Iterator[str]:
        handle = self._handle
        name, data, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_uint32()
        results = ctypes.byref(name), ctypes.byref(data), ctypes.byref(size)
        names: list[str] = []
        with handle.use() as pointer:
            while _is_one(handle.library.gpuwm_file_at(pointer, len(names), *results)):
                names.append(lib.text(name.value))
        return iter(names)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        try:
            files = ", ".join(f"{name} ({len(content):,} bytes)" for name, content in self.items())
        except errors.Error as error:  # closed, or a child has it from its parent
            return f"<gpuwm.Files: {error.message}>"
        return f"<gpuwm.Files: {files or 'none'}>"


def _is_one(result: int) -> bool:
    """Whether there was an item at a position. Raises any other error."""
    if result not in (0, -errno.ERANGE):
        raise lib.last_error(result)
    return result == 0
