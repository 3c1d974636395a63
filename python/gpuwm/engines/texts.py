"""Settings as short texts that are equal in every process if the settings are equal."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
from collections.abc import Mapping, Set
from typing import Any

VALUE_BYTES_MAX = 255  # of a field of a version's key (base/limits.h)
_DIGEST_MARK = " … sha256:"

# Of these classes the attributes say what an object is. Of all others the class's name does: an
# attribute of an arbitrary object may hold an address, a cache or a lock.
_TRANSPARENT = (
    "vllm.model_executor.layers.quantization.",
    "sglang.srt.layers.quantization.",
    "compressed_tensors.quantization.",
)


def plain(value: Any) -> Any:
    """`value` as dicts, lists, texts, numbers, booleans and None, which JSON can hold.

    Dicts lose the order of their entries and sets are sorted. Enums, dtypes, classes and functions
    become their names. Configurations (dataclasses, Structs of msgspec, pydantic models, whatever
    has `to_dict`) become dicts. An object of any other class becomes the name of its class.
    """
    return _plain(value, ())


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
        return str(value).removeprefix("torch.")
    if id(value) in above:
        return "(the object that holds this)"
    return _plain_container(value, (*above, id(value)))


def _plain_container(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, Mapping):
        return {_key(name): _plain(each, above) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, above) for each in value]
    if isinstance(value, Set):
        return sorted((_plain(each, above) for each in value), key=canonical)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _plain(getattr(value, name, None), above) for name in names}
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name, None), above) for name in value.__struct_fields__}
    for method in ("to_dict", "model_dump"):
        if callable(getattr(value, method, None)):
            return _plain(getattr(value, method)(), above)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not kind.startswith(_TRANSPARENT):
        return kind
    found = {name: _plain(each, above) for name, each in vars(value).items()}
    return {"class": kind, **found}


def _key(name: Any) -> str:
    return name if isinstance(name, str) else json.dumps(_plain(name, ()), sort_keys=True)


def canonical(value: Any) -> str:
    """JSON of `plain(value)` with sorted names: the same text for equal values."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(*values: Any) -> str:
    """The SHA-256 of the canonical texts, 64 hexadecimal digits."""
    found = hashlib.sha256()
    for value in values:
        found.update(canonical(value).encode("utf-8", "surrogatepass") + b"\0")
    return found.hexdigest()


def short(text: str, value: Any = None) -> str:
    """A text that fits a field of a key: `text` itself, or its beginning and a SHA-256.

    value: if it is given, it counts in place of the text: its SHA-256 follows `text`, however short
    `text` is.
    """
    if value is None and len(text.encode("utf-8", "replace")) <= VALUE_BYTES_MAX:
        return text
    end = _DIGEST_MARK + digest(text if value is None else value)
    room = VALUE_BYTES_MAX - len(end.encode())
    return text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore") + end
