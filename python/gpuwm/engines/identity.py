"""The identity of the checkpoint that a version is made of: fields of a key that differ if the
content does."""

from __future__ import annotations

import os

from .. import errors
from . import checkpoint, hub, texts

PREFIX = "identity."  # of the names of all these fields; no field of a layout begins with it
WEIGHTS = PREFIX + "weights"  # the field that differs if a weight file does


def fields(kind: str, weights: str, config: str) -> dict[str, str]:
    found = {"kind": kind, "weights": weights, "config": config}
    return {PREFIX + name: value for name, value in found.items() if value}


def of_files(
    path: str, revision: str | None, reading: checkpoint.Reading, download_dir: str | None
) -> dict[str, str]:
    """The identity of a folder, or of a model of the Hugging Face hub.

    download_dir: the folder of the Hugging Face cache; None: the user's. It costs a few system
    calls a file, and for a model of the hub two requests unless HF_HUB_OFFLINE is set. Raises
    NotFound if there is no such checkpoint, Unsupported if gpuwm can't know its content (the remedy
    is a ref of the user's own), and Damaged if an index file can't be read.
    """
    if os.path.isdir(path):
        found = checkpoint.in_folder(path, reading)
    else:
        _check_is_repository(path, reading.formats)
        found = hub.files(path, revision, reading, download_dir)
    kinds = ", ".join(f"{kind} of {number}" for kind, number in found.kinds.items())
    return fields(kinds, texts.digest(found.marks), found.config)


def _check_is_repository(path: str, formats: checkpoint.Formats) -> None:
    if "://" in path:
        raise errors.Unsupported(
            f"the content of {path} is not known without reading it", checkpoint.REMEDY
        )
    if os.path.isfile(path):
        raise errors.Unsupported(
            f"{path} is one file, of a format that {formats.engine} converts", checkpoint.REMEDY
        )
    if path.startswith(("/", "./", "../", "~")):
        raise errors.NotFound(f"there is no folder {path}")
    if formats.uses_modelscope():
        raise errors.Unsupported(
            f"{path} is a model of ModelScope, which lists no hashes", checkpoint.REMEDY
        )
