"""What modules return from `get_extra_state`: a version has it in a file, and `bind` gives it back
by `set_extra_state`, as `load_state_dict` does."""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from .. import errors
from .._tensors import Tensors
from . import registry, tensors

if TYPE_CHECKING:
    from .._publish.parts import Gathered
    from .._version import Version

FILE = "gpuwm.extra_state.json"
SCHEMA = 1
# The last part of its names, which is torch's.
SUFFIX = "_extra_state"  # as in _publish/sources.py, which does without torch
# Every process that binds reads the file. It may take half of what all files of a version may have.
TEXT_BYTES = 16 << 20

Json = Any


def is_name(name: str) -> bool:
    return name.rpartition(".")[2] == SUFFIX


def add(found: Gathered, states: Mapping[str, Any]) -> None:
    """Adds the file with these extra states, by name, and a problem for each that it can't have:
    it has plain values, bytes, BytesIO, tensors of plain data, and lists, tuples and dicts."""
    from ..image import values  # it imports this package

    texts: dict[str, Json] = {}
    for name, state in states.items():
        encoded = values.encoded_deeply(state, values.encoded_with_tensors)
        if encoded is values.NOT_PLAIN:
            path, value = values.not_plain(state, values.encoded_with_tensors)
            found.problems.append(
                f"{name}{path}: a {type(value).__name__}, which is none of plain values, bytes, "
                "tensors, lists, tuples and dicts: let get_extra_state() return only these"
            )
        else:
            texts[name] = {"state": encoded}
    if not texts:
        return
    content = {"schema": SCHEMA, "states": texts}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > TEXT_BYTES:
        largest = max(texts, key=lambda name: len(json.dumps(texts[name])))
        found.problems.append(
            f"{largest}: the extra states take {len(text)} bytes of text, this one most, and may "
            f"take {TEXT_BYTES}: make its tensors buffers, with register_buffer()"
        )
    found.files[FILE] = text


def read(mapping: Tensors) -> dict[str, Any]:
    """The extra states of a version, by name. Raises Damaged, and Unsupported if a newer gpuwm
    wrote them, or if this process has not imported an enum that is in them."""
    from ..image import values

    if FILE not in mapping.files:
        return {}
    try:
        content = json.loads(mapping.files[FILE])
        schema = content["schema"]
        if schema > SCHEMA:
            raise errors.Unsupported(
                f"{FILE} of {mapping.version} has the schema {schema}, and this gpuwm reads "
                f"{SCHEMA}",
                "install a newer gpuwm here, or publish the model with this one",
            )
        states = {str(name): state["state"] for name, state in content["states"].items()}
        return {name: values.decoded(state) for name, state in states.items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise errors.Damaged(
            f"{FILE} of {mapping.version} is damaged: {type(error).__name__} {error}",
            "publish the model anew, under another tag",
        ) from None
    except LookupError as error:
        raise errors.Unsupported(
            f"{FILE} of {mapping.version} has a value of {error}, which this process has not "
            "imported",
            "import the module that defines it",
        ) from None


# ---- binding -----------------------------------------------------------------------------------


class Given:
    """Gives a module its extra state: a step of `bind`, which can be undone."""

    def __init__(self, name: str, module: nn.Module, state: Any) -> None:
        self.name = name
        self.module, self._state = module, state
        self._before: Any = None

    def do(self) -> None:
        self._before = self.module.get_extra_state()
        try:
            self.module.set_extra_state(self._state)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        self.module.set_extra_state(self._before)


def given(
    states: Mapping[str, Any], modules: Sequence[tuple[str, nn.Module]]
) -> Iterator[tuple[str, Given | None]]:
    """The name of each extra state, and the step that gives it to its module. None: the model has
    no module that takes it."""
    takers = {prefix + SUFFIX: module for prefix, module in modules if takes(module)}
    for name, state in states.items():
        yield name, Given(name, takers[name], state) if name in takers else None


def missing(states: Container[str], modules: Sequence[tuple[str, nn.Module]]) -> list[str]:
    """The names of extra states that modules would take, and that there are none of. A module that
    the model has twice takes one, by any of its names."""
    names: dict[nn.Module, list[str]] = {}
    for prefix, module in modules:
        if takes(module):
            names.setdefault(module, []).append(prefix + SUFFIX)
    return [every[0] for every in names.values() if not any(name in states for name in every)]


# The version's name of the extra state that a module was given, and the handle of the version.
_given: weakref.WeakKeyDictionary[nn.Module, tuple[weakref.ref[Any], str]] = (
    weakref.WeakKeyDictionary()
)


def remember(mapping: Tensors, step: Given, source: str) -> None:
    """Remembers for `refresh` that the step was done. source: the name in the version."""
    _given[step.module] = weakref.ref(registry.handle_of(mapping)), source


def refresh(mapping: Tensors, before: Version) -> None:
    """Gives the modules that were bound to the mapping the extra states of its version, which is
    another one now. Modules for which it has none keep theirs, and a warning names them."""
    handle = registry.handle_of(mapping)
    modules = [(module, name) for module, (of, name) in _given.items() if of() is handle]
    states = read(mapping) if modules else {}
    for module, name in modules:
        if name in states:
            module.set_extra_state(states[name])
        elif name in mapping:
            module.set_extra_state(tensors.clone(mapping.torch(name)))
        else:
            warnings.warn(
                f"{mapping.version} has no {name}: the {type(module).__name__} keeps that of "
                f"{before}, and computes with both",
                RuntimeWarning,
                stacklevel=5,  # the line that calls switch or exchange
            )


def takes(module: nn.Module) -> bool:
    kind = type(module)
    return (
        kind.set_extra_state is not nn.Module.set_extra_state
        and kind.get_extra_state is not nn.Module.get_extra_state
    )
