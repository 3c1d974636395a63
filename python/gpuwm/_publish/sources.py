"""Gathers what is to be published: the tensors of a model or of a state dict, each once."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Set
from typing import Any

from .. import errors
from .._c import dtypes, lib
from .._mapping import Mapping as Attached
from .making import Making, Spec
from .parts import Gathered, Part, expanded


def gather(
    source: Any, move: bool, private: Set[str] = frozenset(), cast: str | None = None
) -> Gathered:
    """Gathers the tensors of a source.

    move: parameters, and tensors of a dict, get the publish's memory, except those of `private`.
    cast: see Gathered; with it nothing moves.

    Raises Unsupported, which lists every tensor that can't be published and why, and Invalid if
    there is no tensor.
    """
    found = Gathered(cast)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        from .._torch import sources

        sources.add_model(found, source, move, private)
    elif isinstance(source, Attached):
        raise errors.Invalid(
            f"{source!r} is a version already", "publish its state_dict(), with bind=False"
        )
    elif isinstance(source, Mapping):
        _add_items(found, source, move)
    else:
        raise lib.wrong("source", source, "a module of torch, or a dict of tensors")
    if found.problems:
        raise errors.Unsupported(
            "nothing was published:\n  " + "\n  ".join(found.problems),
            "\nvalues that are plain data can be: see gpuwm.publish",
        )
    if found.others:
        from .._torch import aliases

        aliases.warn(found.others)
    if not found.parts:
        raise errors.Invalid(f"the {type(source).__name__} has no tensors", "publish what has them")
    return found


def _add_items(found: Gathered, items: Mapping[str, Any], move: bool) -> None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    extra_states: dict[str, Any] = {}
    for name, value in items.items():
        if torch is not None and isinstance(value, torch.Tensor):
            from .._torch import sources

            sources.add_item(found, items, name, move)
        elif numpy is not None and isinstance(value, numpy.ndarray):
            _add_array(found, name, value)
        elif torch is not None and name.rpartition(".")[2] == _EXTRA_STATE:
            extra_states[name] = value
        else:
            found.problems.append(f"{name}: a {type(value).__name__}, neither tensor nor array")
    if extra_states:
        from .._torch import extra_state

        extra_state.add(found, extra_states)


# The last part of the names under which torch saves what modules return from get_extra_state.
_EXTRA_STATE = "_extra_state"


# ---- NumPy -------------------------------------------------------------------------------------


def _add_array(found: Gathered, name: str, array: Any) -> None:
    """Adds an array, which does not move: arrays can't get other memory."""
    dtype = _array_dtype(array)
    if dtype is None:
        found.problems.append(f"{name}: {array.dtype}, which versions don't have")
    elif array.size and any(stride == 0 for stride in _strides(array)):
        found.problems.append(f"{name}: repeats its values: {expanded(array.nbytes)}")
    else:
        _add_plain_array(found, name, array, dtype)


def _add_plain_array(found: Gathered, name: str, array: Any, dtype: str) -> None:
    stored = found.stored_as(dtype)
    to = array.dtype if stored == dtype else dtypes.numpy_has(stored)
    if to is None:
        found.problems.append(f"{name}: NumPy can't make it {stored}: install ml_dtypes")
        return
    address = array.__array_interface__["data"][0]
    place = ("cpu", address, dtype, array.shape, array.strides) if array.nbytes else (name,)
    spec = Spec(name, stored, array.shape, tied_to=found.tied_to(place, name))
    found.parts.append(Part(spec, "cpu", functools.partial(_write_array, array, to)))


def _array_dtype(array: Any) -> str | None:
    """The name of its dtype in safetensors."""
    dtype = array.dtype
    if dtype.isnative and not dtype.hasobject and dtype.names is None:
        for row in dtypes.BY_NAME.values():
            if dtype.name == row.ml_dtypes or (row.numpy and dtype == row.numpy):
                return row.name
    return None


def _strides(array: Any) -> Iterator[int]:
    return (stride for stride, n in zip(array.strides, array.shape, strict=True) if n > 1)


def _write_array(array: Any, dtype: Any, making: Making, position: int) -> None:
    import numpy

    dense = numpy.ascontiguousarray(array, dtype)
    making.write(position, dense.__array_interface__["data"][0], dense.nbytes)
