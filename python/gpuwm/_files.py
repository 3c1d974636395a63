"""The files of a version in a folder, for code that reads paths."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import TYPE_CHECKING

from . import errors
from ._attach import attach_mapping
from ._tensors import Tensors

if TYPE_CHECKING:
    import tempfile

    from typing_extensions import Unpack

    from ._lease import MapOptions

# A file system's words for a name that it can't have beside the others: "a" and "a/b", or a part
# of more than 255 bytes.
_NO_SUCH_NAME = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


def files(ref: str | Tensors, **options: Unpack[MapOptions]) -> tempfile.TemporaryDirectory[str]:
    """Writes the version's files into a fresh folder that only this user can enter (mode 0700),
    with their subfolders. Libraries that read paths open it offline:

        with gpuwm.files("embedder@prod") as folder:
            pooling = Pooling.load(os.path.join(folder, "1_Pooling"))

    The folder has no weights. It is removed at the end of the `with`, by `cleanup()`, or when
    nobody holds the result any more; its `name` is the path. Files are data: nothing here runs a
    `*.py`.

    - ref: what to attach while the files are written, on any device; or a Mapping.
    - options: of `gpuwm.attach`.

    Raises Invalid if a publisher chose a name that no folder can have, OSError, and all errors of
    attach."""
    if not isinstance(ref, Tensors):
        with attach_mapping(ref, **options) as mapping:
            return files(mapping)
    import tempfile  # with random, which takes long to import

    folder = tempfile.TemporaryDirectory(prefix="gpuwm-")  # mkdtemp's mode is 0700
    try:
        for name, content in ref.files.items():
            _write(ref, folder.name, name, content)
    except BaseException:
        folder.cleanup()
        raise
    return folder


def _write(mapping: Tensors, folder: str, name: str, content: bytes) -> None:
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):  # such a name would write it somewhere else
        raise _refused(mapping, name)
    path = pathlib.Path(folder, *parts)
    try:
        os.makedirs(path.parent, exist_ok=True)
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        if error.errno in _NO_SUCH_NAME:
            raise _refused(mapping, name) from None
        raise


def _refused(mapping: Tensors, name: str) -> errors.Invalid:
    return errors.Invalid(
        f"{mapping.version} has a file {name!r}, which no folder can have beside its other files",
        "publish it under another name; mapping.files has its content",
    )
