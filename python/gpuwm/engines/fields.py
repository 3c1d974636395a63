"""Fields of a key that all engines compute in the same way, and the name that a key gives."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import texts

# Entries of a model's configuration that say where it came from, and not what it is. Two fine-tunes
# of one model differ in them, and an engine may be switched from one to the other.
_ORIGIN = frozenset({"_name_or_path", "_commit_hash", "transformers_version"})

_TAG_DIGITS = 24  # 96 bits, so that names of different keys never meet by chance
_MODEL_BYTES_MAX = 128  # of a model's name (base/limits.h)


def configuration(model_config: Any) -> dict[str, Any]:
    """The model's configuration after the engine's and the user's overrides, as plain data, without
    what says where it came from."""
    found = texts.plain(model_config.hf_config)
    return {name: value for name, value in found.items() if name not in _ORIGIN}


def config(model_config: Any) -> str:
    """The field of `configuration`: its sizes as text, and a SHA-256 over all of it."""
    found = configuration(model_config)
    text = texts.plain(model_config.hf_text_config)
    shown = []
    for name in (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    ):
        if isinstance(value := text.get(name), int):
            shown.append(f"{name} {value}")
    return texts.short(", ".join(shown), found)


def torch_version() -> str:
    import torch

    return str(torch.__version__)


def torch_folder() -> str:
    import torch

    return os.path.dirname(torch.__file__)


def packages(names: Iterable[str]) -> str:
    """The versions of those packages that are installed."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def derived_name(
    model: str,
    engine: str,
    identity: Mapping[str, str],
    layout: Mapping[str, str],
    rank_fields: Collection[str],
    devices: Iterable[str] = (),
) -> str:
    """The name "model@tag" of the version for this checkpoint and this layout.

    Every process and every rank that has equal arguments gets the same name. A different identity,
    layout or set of devices gives a different tag; fields of a rank do not count, since no name can
    depend on them. model: its path. engine: the tag begins with it. devices: gpuwm's names of the
    devices of all ranks, in any order, for engines that hold copies on different GPUs.
    """
    found = hashlib.sha256()
    shared = {name: value for name, value in layout.items() if name not in rank_fields}
    found.update(texts.digest(dict(identity), shared, sorted(devices)).encode())
    return f"{model_name(model)}@{engine}-{found.hexdigest()[:_TAG_DIGITS]}"


def model_name(path: str) -> str:
    """A name by gpuwm's rules, for a model of the Hugging Face hub, a folder or a file."""
    parts = [part for part in path.split("/") if part]
    cached = [part for part in parts if part.startswith("models--")]
    if cached:
        name = cached[-1].removeprefix("models--").replace("--", "/")
    elif path.startswith(("/", ".", "~")) or len(parts) > 2:
        name = parts[-1] if parts else ""
    else:
        name = path
    name = re.sub(r"[^A-Za-z0-9._/-]", "-", name)
    name = re.sub(r"\.{2,}", ".", name).lstrip("./")[:_MODEL_BYTES_MAX]
    # A name of thirty-two hexadecimal digits would be the id of a version.
    if not name or re.fullmatch(r"[0-9a-fA-F]{32}", name):
        name = f"model-{name}"
    return name.rstrip("-") or "model"
