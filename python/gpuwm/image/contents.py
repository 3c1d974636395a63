"""What is in objects that an image does not carry, where they can say it: whoever gets the image is
told what is different there."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import values
from .kinds import class_name

Content = dict[str, values.Json]
"""What is in an object: plain values by name."""

_SHOWN = 60  # characters of a value in a warning


def of(value: Any) -> Content | None:
    """What is in an object that is not looked into, and what it says of itself. None: it says
    nothing, or is a means of the process."""
    if isinstance(value, types.FunctionType):
        return _of_code(value.__code__) if "<" in value.__qualname__ else None
    for base in type(value).__mro__[:-1]:
        say = _SAY.get(class_name(base))
        if say is not None:
            return say(value)
    return None


def differences(
    name: str,
    published: Content,
    others: Content | None,
    where: tuple[str, str] = ("in the version", "here"),
) -> Iterator[str]:
    """A line for each value that differs. name: the object's path. where: words for both."""
    if others is None or published.get(_PYTHON) != others.get(_PYTHON):
        return  # another Python compiles to other code
    for key in sorted(published.keys() | others.keys()):
        one, other = published.get(key, _ABSENT), others.get(key, _ABSENT)
        if one != other or values.types_of(one) != values.types_of(other):
            path = f"{name}.{key}" if key else name
            yield f"{path}: {_shown(one)} {where[0]}, {_shown(other)} {where[1]}"


_ABSENT: Any = object()


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value)[:_SHOWN]


# ---- by class ----------------------------------------------------------------------------------

_PYTHON = "compiled by"


def _of_code(code: types.CodeType) -> Content:
    """Functions that another function makes, and lambdas, may have one name and do different
    things."""
    constants = [
        sorted(map(repr, each)) if isinstance(each, frozenset) else each
        for each in code.co_consts
        if not isinstance(each, types.CodeType)
    ]
    text = repr((code.co_code, code.co_names, constants))
    inner = [_of_code(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return {_PYTHON: sys.implementation.cache_tag, "": _digest(text + repr(inner))}


def _digest(text: str) -> str:
    return f"code {hashlib.sha256(text.encode()).hexdigest()[:16]}"


# Of configurations: what files say of how they were made. The tensors have the dtypes.
_OF_FILES = frozenset(
    ("name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
)


def _of_config(config: Any) -> Content | None:
    """What a configuration of transformers would write into its file. Its private fields say how
    one process computes."""
    try:
        fields = json.loads(json.dumps(config.to_dict(), default=str))
    except (TypeError, ValueError, RecursionError):
        return None
    return {
        name: value
        for name, value in fields.items()
        if not name.startswith("_") and name not in _OF_FILES
    }


def _of_pattern(pattern: re.Pattern[Any]) -> Content:
    return {"pattern": values.encoded(pattern.pattern), "flags": pattern.flags}


def _of_generator(generator: torch.Generator) -> Content:
    """Its seed. What it has given already is the process's own."""
    return {"seed": generator.initial_seed()}


def _of_numpy_generator(generator: Any) -> Content | None:
    entropy = getattr(generator.bit_generator.seed_seq, "entropy", None)
    return {"seed": entropy} if isinstance(entropy, int) else None


def _of_number(value: Any) -> Content | None:
    """A number of C. Addresses are another matter in each process."""
    number = value.value if value._type_ not in "OPXZz" else None
    return {"": values.encoded(number)} if type(number) in (int, float, bool) else None


_SAY: dict[str, Callable[[Any], Content | None]] = {
    "re.Pattern": _of_pattern,
    "torch._C.Generator": _of_generator,
    "numpy.random._generator.Generator": _of_numpy_generator,
    "numpy.ufunc": lambda function: {"": function.__name__},
    "torch._ops.OpOverload": lambda function: {"": str(function)},
    "torch._ops.OpOverloadPacket": lambda function: {"": str(function)},
    "torch.jit.torch.jit.ScriptFunction": lambda function: {"": _digest(function.code)},
    "triton.runtime.jit.JITFunction": lambda kernel: {"": class_name(kernel.fn)},
    "torch.fx.graph.Graph": lambda graph: {"": _digest(str(graph))},
    "_ctypes._SimpleCData": _of_number,
    "transformers.configuration_utils.PreTrainedConfig": _of_config,
    "transformers.configuration_utils.PretrainedConfig": _of_config,
    "transformers.generation.configuration_utils.GenerationConfig": _of_config,
}
