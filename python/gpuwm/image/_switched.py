"""Tells what a switch between two images leaves as it was: it moves tensors, and nothing else."""

from __future__ import annotations

import fnmatch
import weakref
from collections.abc import Sequence

from .. import _switch, errors
from .._c.handle import Handle
from .._mapping import Mapping as Attached
from .._tensors import Tensors
from .._torch import aliases, registry
from .._version import Version
from . import _compare, record

_NAMED = 5  # values that a warning names
# The handles on which modules lie as images.
_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


def remember(handle: Handle) -> None:
    _handles.add(handle)


def record_of(mapping: Tensors) -> bytes | None:
    """The record of the mapping's version, if a module that lives was made equal to it."""
    handle = registry.handle_of(mapping)
    if handle not in _handles or next(registry.all_bound(mapping), None) is None:
        return None
    return mapping.files.get(record.FILE)


def warn(mapping: Tensors, before: Version, text: bytes, stale: Sequence[str]) -> None:
    """Warns of plain values that are others in the mapping's version than in the one before, of
    which `text` is the record. stale: globs of names of values that may stay."""
    if not isinstance(mapping, Attached) or mapping.files.get(record.FILE) == text:
        return
    told = _told(mapping, before, text, stale)
    more = [f"and {len(told) - _NAMED} more"] * (len(told) > _NAMED)
    if told:
        aliases.warn(
            [
                f"the module has the tensors of {mapping.version} now, and keeps what else "
                f"{before} had, in another way than {mapping.version}:\n  "
                + "\n  ".join((*told[:_NAMED], *more))
                + "\nset these values, or install the image into a new module; stale= names those "
                "that may stay"
            ]
        )


def _told(mapping: Attached, before: Version, text: bytes, stale: Sequence[str]) -> list[str]:
    try:
        old = record.parsed(str(before), text, mapping.infos())
        new = record.read(mapping)
    except errors.Error as error:
        return [f"nobody can say what: {error.message}"]
    return [
        line
        for name, line in _compare.differences(old, new)
        if not any(fnmatch.fnmatchcase(name, glob) for glob in stale)
    ]


_switch.images.append(_switch.OfImages(record_of, warn))
