"""A version as safetensors files."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence

from . import errors
from ._c import abi, lib
from ._tensors import Tensors


def save(
    mappings: Tensors | Sequence[Tensors],
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    shard_bytes: int | None = None,
) -> None:
    """Writes a version into a folder, which is made if it is not there. Every reader of safetensors
    gets its values: tensors are written in the order of their rows.

    - mappings: of every rank of the version one, in their order, each with all of its tensors; or
      the only one.
    - overwrite: replace files with the same names, unless another version comes back from them.
    - shard_bytes: the largest file, unless one tensor is larger. None: 5 GB.

    The files have temporary names until all are complete. `Client.describe` has gpuwmd compare them
    with the version, which then comes back from them.

    Raises Exists (a file is there, or another model, or the files of another version), Damaged,
    Invalid (these mappings are not all of one version), NoRoom and NoTensor (a tensor was not
    attached)."""
    listed = [mappings] if isinstance(mappings, Tensors) else list(mappings)
    for mapping in listed:
        if not isinstance(mapping, Tensors):
            raise lib.wrong("mappings", mappings, "a mapping, or a list of them: gpuwm.attach")
    path = lib.path_bytes(folder, "folder")
    most = 0 if shard_bytes is None else lib.count(shard_bytes, "shard_bytes", lib.UINT64_MAX)
    options = abi.SaveOptions(
        size=ctypes.sizeof(abi.SaveOptions), overwrite=overwrite, shard_bytes=most
    )
    if not listed:
        raise errors.Invalid("a save needs a mapping", "one of every rank: gpuwm.attach makes them")
    handles = [mapping._held() for mapping in listed]
    with contextlib.ExitStack() as stack:
        pointers = [stack.enter_context(handle.use()) for handle in handles]
        array = (ctypes.c_void_p * len(pointers))(*pointers)
        lib.check(handles[0].library.gpuwm_save(array, len(pointers), path, ctypes.byref(options)))
