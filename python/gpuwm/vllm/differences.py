"""What differs between a version and an engine, for a user of vLLM to read."""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from .. import errors
from ..mapping import Mapping as Attached
from . import backends, identity, keys, texts

log = logging.getLogger("vllm.gpuwm")
VALUES_NAMED = 5  # of those that an installation changed
# What vLLM writes when it has loaded weights, which an engine that attaches does not load: torch's
# mode, tensors that wait for their partners, a stopwatch of vLLM 0.33.
WRITTEN_BY_LOADING = frozenset({"training", "_pending_indexer_wk_fp8", "online_quantization_time"})

KEY = "key."  # before the names of a key's fields in the metadata
CONFIGURATION = "vllm.configuration"  # the metadata under which `details` stands


def details(vllm_config: Any, model_config: Any) -> dict[str, str]:
    """Metadata for the version: the texts of which the key has digests only, so that `compare` can
    name the entry that differs. Call it where `keys.layout` is called."""
    found = {
        "config": keys.configuration(model_config),
        "quantization": keys.quantization(vllm_config, model_config),
    }
    return {CONFIGURATION: texts.canonical(found)}


def compare(
    version: str,
    metadata: Mapping[str, str],
    wanted: Mapping[str, str],
    own_details: Mapping[str, str] | None = None,
    who: str = "this engine",
) -> None:
    """Raises gpuwm.Mismatch, naming the first field of `wanted` that the version's key lacks or has
    with another value; `own_details` (of `details`) let it name the entries that differ too.

    version: "model@tag", for the message, and who: what `wanted` is of. metadata: of the version's
    mapping.
    """
    for name, value in wanted.items():
        has = metadata.get(KEY + name)
        if has == value:
            continue
        if has is None:
            message = f'{version} has no field {name} in its key; {who} has "{value}"'
        else:
            message = f'{version} differs from {who} in {name}: {who} has "{value}", '
            message += f'the version "{has}"'
        entries = _entries(name, metadata, own_details or {})
        raise errors.Mismatch(message + entries, remedy(name))


def compare_versions(now: Attached, new: Attached) -> None:
    """Raises gpuwm.Mismatch, naming the first field of the keys of two versions in which `new`
    differs, but for those that say which checkpoint it is."""
    here, there = _layout_of(now), _layout_of(new)
    try:
        compare(str(new.version), new.metadata, here, now.metadata)
        if more := [name for name in there if name not in here]:
            raise errors.Mismatch(f"{new.version} has the field {more[0]} in its key besides")
    except errors.Mismatch as error:
        raise errors.Mismatch(
            f"an engine that is on {now.version} can't move: {error.message}",
            "a running engine keeps its layout: start another engine on that version",
        ) from None


def _layout_of(mapping: Attached) -> dict[str, str]:
    """The fields of its key that are not on the checkpoint. Those on backends are last: they follow
    from other fields, which say more."""
    names = [name.removeprefix(KEY) for name in mapping.metadata if name.startswith(KEY)]
    names.sort(key=lambda name: name.startswith(backends.PREFIX))
    kept = (name for name in names if not name.startswith(identity.PREFIX))
    return {name: mapping.metadata[KEY + name] for name in kept}


def warn_of_values(version: str, model: Any, changed: Iterable[str]) -> None:
    """Warns if an installation changed plain values that only a setting can have chosen, as far as
    that can be known: one that is missing in the key.

    changed: names of values, `gpuwm.image.Installed.values`. model: after the installation. No
    error, since loading and post-processing also derive texts, numbers and booleans from weights,
    which an engine that attaches has not read. Floats are mostly scales, and are left out.
    """
    found = [
        name
        for name in changed
        if name.rpartition(".")[2] not in WRITTEN_BY_LOADING and not _is_float(model, name)
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


def _entries(name: str, metadata: Mapping[str, str], own: Mapping[str, str]) -> str:
    if CONFIGURATION not in metadata or CONFIGURATION not in own:
        return ""
    one = json.loads(own[CONFIGURATION]).get(name)
    other = json.loads(metadata[CONFIGURATION]).get(name)
    found = list(_differences("", one, other))
    return "".join(f"\n  {line}" for line in found[:8]) if found else ""


def _differences(path: str, one: Any, other: Any) -> Iterable[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            inner = f"{path}.{name}" if path else name
            yield from _differences(inner, one.get(name), other.get(name))
        return
    yield f"{path}: {texts.canonical(one)} here, {texts.canonical(other)} in the version"


_REMEDIES = {
    "dtype": "start the engine with the version's --dtype",
    "quantization": "start the engine with the version's --quantization",
    "tp": "start the engine with the version's --tensor-parallel-size",
    "pp": "start the engine with the version's --pipeline-parallel-size",
    "context": "start the engine with the version's --decode-context-parallel-size and "
    "--prefill-context-parallel-size",
    "cache": "start the engine with the version's --kv-cache-dtype and --kv-sharing-fast-prefill",
    "pooler": "start the engine with the version's --pooler-config",
    "limits": "start the engine with the version's limits: --max-model-len, "
    "--max-num-batched-tokens, and what CUDA graphs are captured for",
    "lora": "start the engine as the version's was: with or without --enable-lora",
    "environment": "set the version's environment variables",
}


def remedy(field: str) -> str:
    """What a user of vLLM can do about a difference in this field."""
    first = _REMEDIES.get(field, "start the engine as the version's was")
    return f'{first}, or give another "ref", or none: then this engine derives a name of its own'
