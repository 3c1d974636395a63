"""What a call of a builder is called: its arguments as a key, and the key as a tag."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
import json
import math
import numbers
import pathlib
import re
import string
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .. import _program, errors
from .._c.handle import Handle
from .._mapping import Mapping as Attached
from .._tensor import Ref, Tensor
from .._torch.lookup import ref
from .._torch.tensors import origin_of

# A tag has at most 128 characters. This many tell a person what it is; a digest makes it unique.
SAID_CHARACTERS = 64
DIGEST_DIGITS = 32


class Key(NamedTuple):
    """text: the whole of it. tag: of the version. Equal texts have equal tags, and different ones
    have different tags."""

    text: str
    tag: str

    @property
    def digest(self) -> str:
        return _sha256(self.text)


class Keying:
    """Makes the keys of a function's calls.

    template: fields are the function's parameters and their attributes: "model:{config.hidden}".
    None: the key has all arguments. code: it has a hash of the function too.
    """

    def __init__(self, function: Callable[..., Any], template: str | None, code: bool) -> None:
        self._name = function.__qualname__
        self._signature = _signature(function)
        self._template = template
        self._fields = [] if template is None else self._fields_of(template)
        self._code = code_digest(_code_of(function)) if code else ""

    def _fields_of(self, template: str) -> list[str]:
        try:
            found = [field for _, field, _, _ in string.Formatter().parse(template)]
        except ValueError as error:
            raise errors.Invalid(f"key={template!r}: {error}", "as for str.format") from None
        fields = [field for field in found if field is not None]
        for field in fields:
            if re.split(r"[.\[]", field)[0] not in self._signature.parameters:
                names = ", ".join(self._signature.parameters) or "none"
                raise errors.Invalid(
                    f"key={template!r}: {self._name} has no parameter {field!r}",
                    f"its parameters are: {names}",
                )
        return fields

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key:
        """Raises TypeError as the call would, and Invalid for an argument that can't be part of a
        key."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self._template is None:
            text = self._of_all(bound.arguments)
            said = "-".join(_said(name, value) for name, value in bound.arguments.items()) or "all"
        else:
            text = said = self._filled(self._template, bound.arguments)
        if self._code:
            text += f"\ncode {self._code}"
        is_short = text == said and is_tag(text)
        return Key(text, text if is_short else _digested(said, text))

    def _of_all(self, arguments: Mapping[str, Any]) -> str:
        found = {name: self._encoded(name, value) for name, value in arguments.items()}
        return json.dumps(found, separators=(",", ":"), sort_keys=True)

    def _encoded(self, name: str, value: Any) -> Any:
        try:
            return encoded(value)
        except _Unkeyable as error:
            path, what = f"{name}{error.path}", error.what
        except RecursionError:
            path, what = name, "nested without an end, or nearly so"
        raise errors.Invalid(
            f"argument {path} of {self._name} can't be part of a key: it is {what}",
            f"name what the result depends on: key='{{{name}.attribute}}'",
        )

    def _filled(self, template: str, arguments: Mapping[str, Any]) -> str:
        formatter = string.Formatter()
        for field in self._fields:
            try:
                value, _ = formatter.get_field(field, (), arguments)
            except (AttributeError, LookupError) as error:
                raise errors.Invalid(
                    f"key={template!r}: the argument has no {field!r}: {error}",
                    "fields are parameters, and attributes and items of them",
                ) from None
            if not isinstance(value, _FORMATTED):
                raise errors.Invalid(
                    f"key={template!r}: {field!r} of this call of {self._name} is a "
                    f"{type(value).__qualname__}, which has no text of its own",
                    "name an attribute of it that is a number, a text, an enum or a dtype",
                )
        return formatter.vformat(template, (), arguments)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        raise errors.Invalid(
            f"Python does not know the parameters of {function.__qualname__}",
            "call it in a function of yours, and decorate that",
        ) from None


def _code_of(function: Callable[..., Any]) -> types.CodeType:
    found = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(found, types.CodeType):
        raise errors.Invalid(
            f"code=True: {function.__qualname__} is no function of Python",
            "decorate a function that calls it, or leave code= out",
        )
    return found


_FORMATTED = (
    *(type(None), bool, int, float, str, enum.Enum, pathlib.PurePath),
    *(torch.dtype, torch.device, torch.Size),
)


def _said(name: str, value: Any) -> str:
    if isinstance(value, _FORMATTED):
        return f"{name}-{value}"
    if isinstance(value, numbers.Real):  # equal keys have equal tags, so it reads as Python's own
        return f"{name}-{int(value) if isinstance(value, numbers.Integral) else float(value)}"
    return name


# ---- tags --------------------------------------------------------------------------------------


def slug(text: str) -> str:
    """The text as far as a tag shows it."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).replace("..", "-").strip("-.")[:SAID_CHARACTERS]


def is_tag(text: str) -> bool:
    """Whether gpuwmd takes the text for a tag as it is."""
    return slug(text) == text != "" and text not in ("current", "previous") and not _is_id(text)


def _is_id(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{32}", text) is not None


def _digested(said: str, text: str) -> str:
    return f"{slug(said) or 'key'}-{_sha256(text)[:DIGEST_DIGITS]}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def model_of(function: Callable[..., Any]) -> str:
    """The model of a builder: the function's module and name."""
    module = _program.known(function.__module__)
    name = f"{module}.{function.__qualname__}".replace("<locals>.", "")
    if module == "__main__" or slug(name) != name:
        where = "an interactive program" if module == "__main__" else module
        raise errors.Invalid(
            f"{function.__qualname__} of {where} has no name by which other processes could know "
            "it",
            "give it one: gpuwm.builder(model='name')",
        )
    return name


# ---- values ------------------------------------------------------------------------------------


class _Unkeyable(Exception):
    """path: from the argument to the value. what: it is, in words."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path


def encoded(value: Any) -> Any:
    """A value as JSON. Different values differ in it, also 1, 1.0 and True."""
    if value is None or type(value) in (str, bool):
        return value
    if type(value) is int:
        return value if abs(value) < _JSON_INT else {"int": hex(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, Ref):
        return _dataclass(value)
    for kind, encode in _ENCODERS:
        if isinstance(value, kind):
            return encode(value)
    raise _Unkeyable(_type_of(value))


def _type_of(value: Any) -> str:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"of the type {name.removeprefix('builtins.')}"


# Python writes no int of more than some thousand digits as decimals.
_JSON_INT = 1 << 64


def _part(path: str, value: Any) -> Any:
    try:
        return encoded(value)
    except _Unkeyable as error:
        raise _Unkeyable(error.what, f"{path}{error.path}") from None


def _real(value: Any) -> Any:
    """NumPy's narrower numbers. Fractions and wider ones have no float of their own."""
    found = float(value)
    if (found != value and not math.isnan(found)) or isinstance(value, numbers.Rational):
        raise _Unkeyable(_type_of(value))
    return encoded(found)


def _items(values: Sequence[Any]) -> list[Any]:
    return [_part(f"[{index}]", value) for index, value in enumerate(values)]


def _mapping(values: Mapping[Any, Any]) -> Any:
    pairs = [[encoded(key), _part(f"[{key!r}]", value)] for key, value in values.items()]
    return {_kind_of(values, dict): sorted(pairs, key=json.dumps)}


def _set(values: frozenset[Any] | set[Any]) -> Any:
    return {"set": sorted((_part(f"[{value!r}]", value) for value in values), key=json.dumps)}


def _kind_of(value: Any, base: type) -> str:
    kind = type(value)
    return base.__name__ if kind is base else _named(kind)


def _named(value: Any) -> str:
    """A class or function, as every process knows it."""
    return f"{_program.known(value.__module__)}.{value.__qualname__}"


def _dataclass(value: Any) -> Any:
    if isinstance(value, type):
        return _class(value)
    fields = {
        field.name: _part(f".{field.name}", getattr(value, field.name))
        for field in dataclasses.fields(value)
    }
    return {_kind_of(value, object): fields}


def _class(value: type) -> Any:
    if "<locals>" in value.__qualname__:
        raise _Unkeyable(f"the local class {value.__qualname__}")
    return {"class": _named(value)}


def _function(value: Any) -> Any:
    name = _named(value)
    if "<" in name:
        raise _Unkeyable(f"the function {value.__qualname__}, which has no name of its own")
    return {"function": name}


def _tensor(value: torch.Tensor) -> Any:
    """By the version that it lies in, which never changes: its bytes are not read."""
    if origin_of(value) is None:
        raise _Unkeyable("a tensor that lies in no version (gpuwm.share makes it one)")
    return _ref(ref(value))


def _ref(value: Ref) -> Any:
    return {"tensor": [value.version, value.rank, value.name, value.view]}


def _attached(value: Attached) -> Any:
    handle: Handle = value._held()
    return {"version": [handle.where.id, handle.where.rank]}


_ENCODERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda value: {_kind_of(value, enum.Enum): value.name}),
    (bool | int | str, lambda value: {_kind_of(value, object): value.__repr__()}),
    (float, lambda value: {"float": value.hex()}),
    (numbers.Integral, lambda value: encoded(int(value))),
    (numbers.Real, lambda value: _real(value)),
    (complex, lambda value: {"complex": repr(value)}),
    (bytes | bytearray, lambda value: {"bytes": hashlib.sha256(value).hexdigest()}),
    (torch.Size, lambda value: {"size": list(value)}),
    (tuple, lambda value: {_kind_of(value, tuple): _items(value)}),
    (list, _items),
    (Mapping, lambda value: _attached(value) if isinstance(value, Attached) else _mapping(value)),
    (set | frozenset, _set),
    (torch.dtype | torch.device, lambda value: {type(value).__name__: str(value)}),
    (pathlib.PurePath, lambda value: {"path": str(value)}),
    (torch.Tensor, _tensor),
    (Tensor, lambda value: _ref(value.ref())),
    (Ref, _ref),
    (Attached, _attached),
    (types.FunctionType | types.BuiltinFunctionType, _function),
    (type, _class),
)


def code_digest(code: types.CodeType) -> str:
    """A hash of what a function does itself; not of what it calls, nor of its comments."""
    found = hashlib.sha256()
    for part in (code.co_code, code.co_names, code.co_varnames, code.co_freevars):
        found.update(repr(part).encode())
    for constant in code.co_consts:
        found.update(_constant(constant).encode())
    return found.hexdigest()


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return code_digest(value)
    if isinstance(value, frozenset):  # its order differs from process to process
        return repr(sorted(map(repr, value)))
    return repr(value)
