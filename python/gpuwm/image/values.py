"""Plain values to JSON and back. Reading one runs no code."""

from __future__ import annotations

import base64
import enum
import inspect
import io
import json
import math
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .. import _program
from .._torch import extents
from .._torch.init import is_plain
from . import arrays
from .kinds import class_name

Json = Any
NOT_PLAIN = object()


def encoded(value: Any) -> Json:
    """Encodes None, bool, int, float, complex, str, bytes, bytearray, range, slice, tuples and sets
    of them, dtypes, memory formats, layouts and torch.Size, numbers of NumPy, and members of enums.
    Returns NOT_PLAIN for anything else."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is bytes:
        return {"bytes": _base64(value)}
    if kind is complex:
        return {"complex": [encoded(value.real), encoded(value.imag)]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, enum.Enum):
        return _encoded_enum(value)
    if type(value) in (tuple, torch.Size):
        parts = [encoded(part) for part in value]
        if all(part is not NOT_PLAIN for part in parts):
            return {"tuple" if type(value) is tuple else "size": parts}
    if kind in (set, frozenset):
        parts = [encoded(part) for part in value]
        if all(part is not NOT_PLAIN for part in parts):
            return {kind.__name__: sorted(parts, key=json.dumps)}
    return _encoded_rarely(value)


def _encoded_enum(member: enum.Enum) -> Json:
    said = class_name(type(member))
    if isinstance(member, enum.Flag):  # several members together have no name
        return {"flag": [said, member.value]} if type(member.value) is int else NOT_PLAIN
    return {"enum": [said, member.name]}


def _encoded_rarely(value: Any) -> Json:
    kind = type(value)
    if kind in _OF_TORCH:
        return {"torch": str(value).removeprefix("torch.")}
    if kind is bytearray:
        return {"bytearray": _base64(value)}
    if kind in (range, slice):
        parts = [encoded(part) for part in (value.start, value.stop, value.step)]
        if all(part is not NOT_PLAIN for part in parts):
            return {kind.__name__: parts}
    if kind.__module__.partition(".")[0] == "numpy":
        return arrays.encoded_plain(value) or NOT_PLAIN
    return NOT_PLAIN


_OF_TORCH = (torch.memory_format, torch.layout, torch.qscheme)


_DICTS: dict[type, str] = {dict: "dict", OrderedDict: "ordered"}


def encoded_deeply(value: Any, leaf: Callable[[Any], Json] = encoded) -> Json:
    """Encodes lists, tuples and dicts with plain keys too. leaf: encodes what is none of them."""
    kind = type(value)
    if kind in (list, tuple):
        parts = [encoded_deeply(part, leaf) for part in value]
        return NOT_PLAIN if any(part is NOT_PLAIN for part in parts) else {kind.__name__: parts}
    if kind in _DICTS:
        items = [[encoded(key), encoded_deeply(part, leaf)] for key, part in value.items()]
        return NOT_PLAIN if any(NOT_PLAIN in item for item in items) else {_DICTS[kind]: items}
    return leaf(value)


def not_plain(value: Any, leaf: Callable[[Any], Json] = encoded) -> tuple[str, Any]:
    """The path to the first part that `encoded_deeply` can't encode, and that part."""
    kind = type(value)
    parts: Iterable[tuple[Any, Any]] = ()
    if kind in (list, tuple):
        parts = enumerate(value)
    elif kind in _DICTS:
        parts = value.items()
    for key, part in parts:
        if encoded(key) is NOT_PLAIN:
            return "", key
        if encoded_deeply(part, leaf) is NOT_PLAIN:
            path, found = not_plain(part, leaf)
            return f"[{key!r}]{path}", found
    return "", value


def encoded_with_tensors(value: Any) -> Json:
    """Encodes a small tensor of plain data, a small array or a BytesIO, besides what `encoded`
    does."""
    if type(value) is io.BytesIO:
        return {"stream": _base64(value.getvalue())}
    if isinstance(value, torch.Tensor) and is_plain(value) and not value.is_meta:
        content = extents.bytes_of(value.cpu()).numpy().tobytes()
        dtype = str(value.dtype).removeprefix("torch.")
        return {"data": [dtype, list(value.size()), _base64(content)]}
    if arrays.is_array(type(value)) and not arrays.problem(value):
        return arrays.encoded(value)
    return encoded(value)


def _base64(content: bytes | bytearray) -> str:
    return base64.b64encode(content).decode()


def is_plain_json(value: Json) -> bool:
    return not isinstance(value, dict) or any(kind in value for kind in _DECODERS)


def types_of(value: Json) -> Any:
    """The types in an encoded value: 1, 1.0 and True are equal, but not the same."""
    if isinstance(value, dict):
        return {key: types_of(part) for key, part in value.items()}
    if isinstance(value, list):
        return [types_of(part) for part in value]
    return type(value)


def decoded(value: Json) -> Any:
    """Decodes a value. Raises ValueError if `encoded` can't have made it, and LookupError for an
    enum that this process has not imported."""
    if not isinstance(value, dict):
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise ValueError(f"{value!r} is no plain value")
    if len(value) != 1:
        raise ValueError(f"{value!r} is no plain value")
    ((kind, content),) = value.items()
    decode = _DECODERS.get(kind)
    if decode is None:
        raise ValueError(f"{value!r} is no plain value")
    return decode(content)


def _float(content: Json) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise ValueError(f"{content!r} is no float")
    return float(content)


def dtype_named(content: Json) -> torch.dtype:
    found = getattr(torch, content, None) if isinstance(content, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no dtype {content!r}")
    return found


def _parts(content: Json) -> tuple[Any, ...]:
    if not isinstance(content, list):
        raise ValueError(f"{content!r} is no list")
    return tuple(decoded(part) for part in content)


def _list(content: Json) -> list[Any]:
    return list(_parts(content))


def _dict(content: Json) -> dict[Any, Any]:
    pairs = [_parts(pair) for pair in content] if isinstance(content, list) else [()]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{content!r:.80} is no dict")
    return {_hashable(key): part for key, part in pairs}


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"{value!r:.80} can't be a key") from None
    return value


def _set(content: Json) -> set[Any]:
    return {_hashable(part) for part in _parts(content)}


def _bytes(content: Json) -> bytes:
    if not isinstance(content, str):
        raise ValueError(f"{content!r:.80} is no text of bytes")
    return base64.b64decode(content, validate=True)


def _complex(content: Json) -> complex:
    parts = _parts(content)
    if [type(part) for part in parts] != [float, float]:
        raise ValueError(f"{content!r:.80} is no complex number")
    return complex(*parts)


def _data(content: Json) -> torch.Tensor:
    if not (isinstance(content, list) and len(content) == 3 and isinstance(content[1], list)):
        raise ValueError(f"{content!r:.80} is no tensor")
    dtype, size, raw = dtype_named(content[0]), _size(content[1]), bytearray(_bytes(content[2]))
    if size.numel() * dtype.itemsize != len(raw) or any(n < 0 for n in size):
        raise ValueError(f"a tensor of {dtype} and {list(size)} has {len(raw)} bytes")
    return torch.frombuffer(raw, dtype=dtype).view(size) if raw else torch.empty(size, dtype=dtype)


def _size(content: Json) -> torch.Size:
    parts = _parts(content)
    if not all(type(part) is int for part in parts):
        raise ValueError(f"{content!r} is no size")
    return torch.Size(parts)


def _enum(content: Json) -> enum.Enum:
    if not (isinstance(content, list) and [type(part) for part in content] == [str, str]):
        raise ValueError(f"{content!r} is no member of an enum")
    kind = imported(content[0])
    if kind is None or not issubclass(kind, enum.Enum):
        raise LookupError(content[0])
    if content[1] not in kind.__members__:
        raise LookupError(".".join(content))
    return kind[content[1]]


def _flag(content: Json) -> enum.Flag:
    if not (isinstance(content, list) and [type(part) for part in content] == [str, int]):
        raise ValueError(f"{content!r} is no member of an enum")
    kind = imported(content[0])
    if kind is None or not issubclass(kind, enum.Flag):
        raise LookupError(content[0])
    return kind(content[1])


def _of_torch(content: Json) -> Any:
    found = getattr(torch, content, None) if isinstance(content, str) else None
    if type(found) not in _OF_TORCH:
        raise ValueError(f"torch {torch.__version__} has no {content!r}")
    return found


def _range(content: Json) -> range:
    parts = _parts(content)
    if [type(part) for part in parts] != [int, int, int] or not parts[2]:
        raise ValueError(f"{content!r} is no range")
    return range(*parts)


def _slice(content: Json) -> slice:
    parts = _parts(content)
    if len(parts) != 3:
        raise ValueError(f"{content!r} is no slice")
    return slice(*parts)


_DECODERS: dict[str, Callable[[Json], Any]] = {
    "float": _float,
    "dtype": dtype_named,
    "tuple": _parts,
    "list": _list,
    "dict": _dict,
    "ordered": lambda content: OrderedDict(_dict(content)),
    "size": _size,
    "enum": _enum,
    "flag": _flag,
    "torch": _of_torch,
    "range": _range,
    "slice": _slice,
    "bytes": _bytes,
    "bytearray": lambda content: bytearray(_bytes(content)),
    "array": arrays.array,
    "scalar": arrays.scalar,
    "numpy.dtype": arrays.dtype,
    "complex": _complex,
    "set": _set,
    "frozenset": lambda content: frozenset(_set(content)),
    "stream": lambda content: io.BytesIO(_bytes(content)),
    "data": _data,
}


def imported(name: str) -> type | None:
    """A class by its name, from modules that this process has imported already. It imports
    nothing."""
    return next((found for found in named(name) if isinstance(found, type)), None)


def named(name: str) -> Iterator[Any]:
    """The classes and functions that have the name in modules that this process has imported
    already. It tries the longest name of a module first."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        for module in _program.found(".".join(parts[:count])):
            found: Any = module
            for part in parts[count:]:
                found = _below(found, part)
            if issubclass(type(found), _NAMED):
                yield found


_NAMED = (
    *(type, types.FunctionType, types.BuiltinFunctionType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType),
)


def _below(owner: Any, name: str) -> Any:
    """What a module or class has under the name, or None. Unlike getattr it runs none of their
    code, which may import what is missing. ctypes.cdll even loads the library of that name."""
    if not issubclass(type(owner), types.ModuleType | type):
        return None
    found = inspect.getattr_static(owner, name, None)
    return found.__func__ if type(found) is staticmethod else found
