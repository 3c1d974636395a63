"""The files of a checkpoint that an engine's loader would read, and a cheap mark of each.

Nothing here reads a weight file. Everything works on names, links, `stat` and small JSON files, or
on one answer of the Hugging Face hub where a checkpoint is not on this machine yet.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .. import errors

SAFETENSORS_INDEX = "model.safetensors.index.json"
CONSOLIDATED_INDEX = "consolidated.safetensors.index.json"
INDEX_BYTES_MAX = 64 << 20  # the largest published index has about 10 MiB

# Small files that decide what the weight files become.
CONFIGS = (
    "config.json",
    "params.json",
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "configuration.json",
    SAFETENSORS_INDEX,
    CONSOLIDATED_INDEX,
)

# What the default loaders of vLLM and SGLang skip beside weights in *.bin and *.pt files.
_NOT_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")

REMEDY = 'name the version: --model-loader-extra-config \'{"ref": "model@tag"}\''


class Formats(NamedTuple):
    """The load formats of an engine's default loader.

    - engine: its name.
    - patterns: of each format's files; the first pattern that matches a file counts.
    - auto: the format that "auto" means for a checkpoint with files of these names.
    - uses_modelscope: the engine takes models that are not folders from ModelScope, and not from
      the Hugging Face hub.
    - unlisted: files that the engine reads besides those that the index of safetensors lists.
    """

    engine: str
    patterns: Mapping[str, tuple[str, ...]]
    auto: Callable[[Iterable[str]], str]
    uses_modelscope: Callable[[], bool]
    unlisted: tuple[str, ...] = ()


class Reading(NamedTuple):
    """How an engine reads a checkpoint. code: Python files belong to the model."""

    formats: Formats
    load_format: str = "auto"
    code: bool = False


class Files(NamedTuple):
    """A checkpoint's files.

    - marks: by name, a text for each weight file that is equal as long as the content is.
    - kinds: how many marks of each kind there are: "sha256", "git" and "stat".
    """

    marks: dict[str, str]
    kinds: dict[str, int]
    config: str  # the result of `digest_small`


def choose(
    names: Iterable[str], reading: Reading, index: Callable[[str], Mapping[str, Any] | None]
) -> list[str]:
    """Of the names of a checkpoint's files, those whose tensors the engine would read, sorted.

    index: returns the parsed index file of a name, or None if there is none. Raises Unsupported for
    a load format that reads something else than files of weights.
    """
    formats, load_format = reading.formats, reading.load_format
    names = sorted(name for name in names if "/" not in name)
    if load_format == "auto":
        load_format = formats.auto(names)
    if load_format not in formats.patterns:
        raise errors.Unsupported(
            f"the files that load format {load_format} reads are not known to gpuwm",
            REMEDY,
        )
    found: list[str] = []
    for pattern in formats.patterns[load_format]:
        found = fnmatch.filter(names, pattern)
        if found:
            break
    if not found or not found[0].endswith(".safetensors"):
        return [name for name in found if not name.endswith(_NOT_WEIGHTS)]
    parsed = index(CONSOLIDATED_INDEX if load_format == "mistral" else SAFETENSORS_INDEX)
    if parsed is None:
        return found
    listed = {*parsed.get("weight_map", {}).values(), *formats.unlisted}
    return [name for name in found if name in listed]


# ---- a folder ------------------------------------------------------------------------------------


def in_folder(folder: str, reading: Reading) -> Files:
    """The files of a folder on this machine.

    Raises NotFound if a link leads to a file that is gone, and Unsupported if the folder has no
    file that the engine would load, unless the model's class names others.
    """
    names = os.listdir(folder)
    chosen = choose(names, reading, lambda name: _read_index(folder, name))
    if not chosen:
        raise no_weights(folder, names, reading)
    missing = [name for name in chosen if not os.path.exists(os.path.join(folder, name))]
    if missing:
        raise errors.NotFound(f"{folder} links to files that are not there: {', '.join(missing)}")
    found = {name: mark(os.path.join(folder, name)) for name in chosen}
    small = [name for name in names if is_small(name, reading.code)]
    return Files(
        {name: text for name, (_, text) in found.items()},
        count(kind for kind, _ in found.values()),
        digest_small({name: _git_hash(os.path.join(folder, name)) for name in small}),
    )


def no_weights(where: str, names: Iterable[str], reading: Reading) -> errors.Unsupported:
    return errors.Unsupported(
        f"{where} has no weights that {reading.formats.engine}'s load format "
        f"{reading.load_format} would read: "
        "it has " + (", ".join(sorted(names)[:10]) or "no files"),
        f"if the model's class reads other files, {REMEDY}",
    )


def mark(path: str) -> tuple[str, str]:
    """(kind, mark) of a weight file. A link into a `blobs` folder, as in the Hugging Face cache,
    ends at a file that is named by its SHA-256 ("sha256") or its git hash ("git"). The mark of any
    other file is its size, times in nanoseconds and inode ("stat")."""
    target = os.path.realpath(path)
    parent, name = os.path.split(target)
    size = os.stat(target).st_size
    if os.path.basename(parent) == "blobs":
        if re.fullmatch(r"[0-9a-f]{64}", name):
            return "sha256", blob_mark(name, size)
        if re.fullmatch(r"[0-9a-f]{40}", name):
            return "git", blob_mark(name, size)
    status = os.stat(target)
    # The time of change also finds a write after which the time of modification was put back.
    return "stat", f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"


def blob_mark(name: str, size: int) -> str:
    return f"{name}:{size}"


def _read_index(folder: str, name: str) -> Mapping[str, Any] | None:
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return None
    return parse_index(path, read_small(path))


def parse_index(path: str, content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
        if isinstance(found["weight_map"], dict):
            return dict(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise errors.Damaged(f"{path} is no index of safetensors files: it has no object weight_map")


def read_small(path: str) -> bytes:
    size = os.path.getsize(path)
    if size > INDEX_BYTES_MAX:
        raise errors.Damaged(f"{path} has {size} bytes; gpuwm reads at most {INDEX_BYTES_MAX}")
    with open(path, "rb") as file:
        return file.read()


def digest_small(hashes: Mapping[str, str]) -> str:
    """One SHA-256 over the git hashes of small files, by name."""
    found = hashlib.sha256()
    for name in sorted(hashes):
        found.update(f"{name}\0{hashes[name]}\n".encode())
    return found.hexdigest()


def _git_hash(path: str) -> str:
    """The hash by which git and the Hugging Face hub know the content of a small file."""
    content = read_small(path)
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def is_small(name: str, code: bool) -> bool:
    """Whether a file is one of the small ones. code: Python files belong to the model."""
    return name in CONFIGS or (code and "/" not in name and name.endswith(".py"))


def count(kinds: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in kinds:
        found[kind] = found.get(kind, 0) + 1
    return dict(sorted(found.items()))
