"""Describes what differs between a version and an engine, for a user of vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import errors
from .._mapping import Mapping as Attached
from ..engines import differences as shared
from ..engines import identity, texts
from ..engines.differences import KEY
from . import backends, keys

# Attributes that vLLM writes when it has loaded weights: torch's mode, tensors that wait for their
# partners, a stopwatch of vLLM 0.33. An engine that attaches does not load weights.
WRITTEN_BY_LOADING = frozenset({"training", "_pending_indexer_wk_fp8", "online_quantization_time"})

CONFIGURATION = "vllm.configuration"  # the name of the metadata with the result of `details`


def details(vllm_config: Any, model_config: Any) -> dict[str, str]:
    """Metadata for the version: the texts of which the key has only digests, so that `compare` can
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
    """`gpuwm.engines.differences.compare` with vLLM's remedies. With `own_details` (the result of
    `details`) it also names the entries that differ."""
    shared.compare(version, metadata, wanted, remedy, (CONFIGURATION, own_details or {}), who)


def compare_versions(now: Attached, new: Attached) -> None:
    """Raises gpuwm.Mismatch, which names the first field that differs between the keys of two
    versions. Fields that say which checkpoint it is do not count."""
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
    """The fields of its key that do not concern the checkpoint. Those on backends come last: they
    follow from other fields, which say more."""
    names = [name.removeprefix(KEY) for name in mapping.metadata if name.startswith(KEY)]
    names.sort(key=lambda name: name.startswith(backends.PREFIX))
    kept = (name for name in names if not name.startswith(identity.PREFIX))
    return {name: mapping.metadata[KEY + name] for name in kept}


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
    return shared.remedy(_REMEDIES, field)
