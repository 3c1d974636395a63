"""Describes what differs between a version and an engine, for the engine's user."""

from __future__ import annotations

import contextlib
import json
import logging
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from .. import errors
from . import texts
from .identity import PREFIX

VALUES_NAMED = 5  # how many of the values that an installation changed are named
ENTRIES_NAMED = 8  # how many entries of a configuration that differs are named

KEY = "key."  # the prefix of a key's fields in the metadata
MAKER = ".maker"  # the end of the name of the metadata that says who made a version


def compare(
    version: str,
    metadata: Mapping[str, str],
    wanted: Mapping[str, str],
    remedy: Callable[[str], str],
    details: tuple[str, Mapping[str, str]] = ("", {}),
    who: str = "this engine",
) -> None:
    """Raises gpuwm.Mismatch, which names the first field of `wanted` that the version's key lacks
    or has with another value.

    - version: "model@tag", for the message.
    - metadata: of the version's mapping.
    - remedy: returns what a user can do about a field.
    - details: the name of the metadata that has the texts of which the key has only digests, and
      this engine's own such metadata. With them the error also names the entries that differ.
    - who: whose fields `wanted` has, for the message.
    """
    for name, value in wanted.items():
        has = metadata.get(KEY + name)
        if has == value:
            continue
        if name.startswith(PREFIX):
            message = f"{version} was made from another checkpoint than {who} loads"
            message += f'{_source(metadata)}: in {name}, {who} has "{value}", the version "{has}"'
        elif has is None:
            message = f'{version} has no field {name} in its key; {who} has "{value}"'
        else:
            message = f'{version} differs from {who} in {name}: {who} has "{value}", '
            message += f'the version "{has}"'
        raise errors.Mismatch(message + _entries(name, metadata, *details), remedy(name))


def _source(metadata: Mapping[str, str]) -> str:
    """From which path the version was made, as its maker named it."""
    for name, text in metadata.items():
        if name.endswith(MAKER):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return f", from {json.loads(text)['model']}"
    return ""


_CHECKPOINT = (
    "start the engine with the version's checkpoint (a copy of files, or files that were touched, "
    'count as another one), or with "mode": "load", which takes any'
)


def remedy(remedies: Mapping[str, str], field: str) -> str:
    """What a user can do about a difference in this field. remedies: by field, those of the
    engine."""
    first = remedies.get(field, "start the engine as the version's was")
    if field.startswith(PREFIX):
        first = _CHECKPOINT
    return f'{first}, or give another "ref", or none: then this engine derives a name of its own'


def warn_of_values(
    log: logging.Logger, version: str, model: Any, changed: Iterable[str], written: Collection[str]
) -> None:
    """Warns if an installation changed plain values that only a setting can have chosen, as far as
    gpuwm can know. Such a setting is missing in the key.

    changed: names of values, `gpuwm.image.Installed.values`. model: after the installation.
    written: names of attributes that the engine writes while it loads. It is no error: loading and
    post-processing also derive texts, numbers and booleans from weights, which an engine that
    attaches has not read. Floats are mostly scales, and are left out.
    """
    found = [
        name
        for name in changed
        if name.rpartition(".")[2] not in written and not _is_float(model, name)
    ]
    if not found:
        return
    more = f" and {len(found) - VALUES_NAMED} more" if len(found) > VALUES_NAMED else ""
    log.warning(
        "gpuwm: this engine had other values than %s in %s%s, and now has those of the version. If "
        "a setting of this engine chose them, report these names to gpuwm as missing in its keys, "
        'and give this engine another "ref"',
        version,
        ", ".join(found[:VALUES_NAMED]),
        more,
    )


def _is_float(model: Any, name: str) -> bool:
    try:
        return isinstance(operator.attrgetter(name)(model), float)
    except AttributeError:
        return False  # an item of a list or a dict, or a value that the version lacks


def _entries(
    name: str, metadata: Mapping[str, str], configuration: str, own: Mapping[str, str]
) -> str:
    if configuration not in metadata or configuration not in own:
        return ""
    one = json.loads(own[configuration]).get(name)
    other = json.loads(metadata[configuration]).get(name)
    found = list(_differences("", one, other))
    return "".join(f"\n  {line}" for line in found[:ENTRIES_NAMED]) if found else ""


def _differences(path: str, one: Any, other: Any) -> Iterable[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            inner = f"{path}.{name}" if path else name
            yield from _differences(inner, one.get(name), other.get(name))
        return
    yield f"{path}: {texts.canonical(one)} here, {texts.canonical(other)} in the version"
