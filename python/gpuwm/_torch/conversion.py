"""What the installed transformers changes when it loads: it renames tensors, joins or splits them,
converts dtypes, and ties weights. New names and ties can be applied in place. The rest can't, and
is reported."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Set
from typing import Any, NamedTuple

import torch
from torch import nn

from . import init


class Conversion(NamedTuple):
    """What loading would change. Both lists at the end leave out what the model's class says to
    ignore.

    - names: for tensors of the version that the model calls otherwise, the model's names. None: the
      model has no such tensor.
    - problems: a line for each tensor of the model that loading would compute.
    - missing: buffers that the version lacks. Missing parameters are left to bind.
    - unexpected: tensors of the version that the model lacks.
    """

    names: dict[str, str | None]
    problems: list[str]
    missing: list[str]
    unexpected: list[str]


def conversion(model: Any, keys: Mapping[str, torch.dtype]) -> Conversion:
    """What loading tensors of these names and dtypes into a model of transformers would change."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    state = model.state_dict(keep_vars=True)
    weights = get_model_conversion_mapping(model)
    renamings = [weight for weight in weights if isinstance(weight, WeightRenaming)]
    converters = [weight for weight in weights if isinstance(weight, WeightConverter)]
    prefix = model.base_model_prefix
    names: dict[str, str | None] = {}
    made: defaultdict[str, list[str]] = defaultdict(list)
    operations: dict[str, Any] = {}
    for key in keys:
        if key in state:
            continue  # a version that was published from a loaded model has the model's names
        name, pattern = rename_source_key(key, renamings, converters, prefix, state)
        if pattern is not None:
            made[name].append(key)
            operations[name] = next(c for c in converters if pattern in c.source_patterns)
        else:
            names[key] = name if name in state else None
    problems = [
        _made(name, sorted(parts), operations[name]) for name, parts in sorted(made.items())
    ]
    called = {key: ours for key in keys if (ours := names.get(key, key)) is not None}
    problems += _renamed_twice(called)
    problems += _converted(state, {ours: keys[key] for key, ours in called.items()})
    there = set(called.values())
    buffers = [name for name, tensor in state.items() if not isinstance(tensor, nn.Parameter)]
    missing = [name for name in buffers if name not in there]
    unexpected = [key for key, name in names.items() if name is None]
    return Conversion(
        names,
        problems,
        _without(missing, model._keys_to_ignore_on_load_missing),
        _without(unexpected, model._keys_to_ignore_on_load_unexpected),
    )


def _without(names: Iterable[str], patterns: Iterable[str] | None) -> list[str]:
    patterns = list(patterns or ())
    return [name for name in names if not any(re.search(p, name) for p in patterns)]


def _made(name: str, parts: list[str], converter: Any) -> str:
    """The first target of a conversion, and the tensors that it is made of."""
    steps = ", ".join(type(step).__name__ for step in converter.operations)
    more = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    return f"made at load: {name} of {parts[0]}{more} ({steps})"


def _renamed_twice(called: Mapping[str, str]) -> list[str]:
    first: dict[str, str] = {}
    problems: list[str] = []
    for key, name in called.items():
        if first.setdefault(name, key) != key:
            problems.append(f"named alike: {first[name]} and {key} are both {name} in the model")
    return problems


def _converted(state: Mapping[str, torch.Tensor], dtypes: Mapping[str, torch.dtype]) -> list[str]:
    """The dtypes that loading would convert. Tensors with the same conversion share a line."""
    alike: defaultdict[tuple[torch.dtype, torch.dtype], list[str]] = defaultdict(list)
    for name, dtype in dtypes.items():
        tensor = state.get(name)
        if isinstance(tensor, nn.Parameter) and tensor.dtype != dtype:
            alike[tensor.dtype, dtype].append(name)
    return [
        f"converted at load: {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: "
        f"{theirs} in the version, {mine} in the model"
        for (mine, theirs), names in alike.items()
    ]


def computed(model: Any, keys: Mapping[str, torch.dtype]) -> list[str]:
    """Parameters that tensors of these names and dtypes lack, and that the model's class makes
    without a file: sinusoids that it does not save, norms that old checkpoints don't have."""
    patterns = list(model._keys_to_ignore_on_load_missing or ())
    unsaved = set(model._keys_to_ignore_on_save or ())
    if not patterns and not unsaved:
        return []
    names = conversion(model, keys).names
    there = {names.get(key, key) for key in keys}
    return [
        name
        for name, _ in model.named_parameters()
        if name not in there
        and name not in model.all_tied_weights_keys
        and (name in unsaved or any(re.search(pattern, name) for pattern in patterns))
    ]


def untied(model: Any, names: Container[str]) -> list[str]:
    """Parameters of the model that are not among the names, and that its class would tie to others
    if the config said so. names: those of the version, as the model calls them."""
    patterns: Mapping[str, str] = model._tied_weights_keys or {}
    return [
        name
        for name, _ in model.named_parameters()
        if name not in names
        and name not in model.all_tied_weights_keys
        and any(re.match(pattern, name) for pattern in patterns)
    ]


def tie(model: Any, tensor: Callable[[str], torch.Tensor], names: Set[str]) -> None:
    """Ties weights of a model without memory as loading would, by transformers' own code: if the
    config ties two weights and the version has both, they are tied only if their values are equal.
    Does nothing if one of them has another shape than the model, which bind reports.

    tensor: returns the version's tensor that the model calls by that name. names: all of them."""
    tied = {*model.all_tied_weights_keys, *model.all_tied_weights_keys.values()}
    there = {name: (model.get_parameter_or_buffer(name), tensor(name)) for name in tied & names}
    if any(weight.size() != own.size() for weight, own in there.values()):
        return
    for name, (weight, own) in there.items():
        module, _, key = name.rpartition(".")
        setattr(model.get_submodule(module), key, init.alias(type(weight), own, weight, False))
    model.tie_weights(missing_keys=tied - there.keys(), recompute_mapping=False)


def set_dtypes(model: Any, dtype: torch.dtype) -> None:
    """Gives parameters the dtypes that loading in `dtype` would give them."""
    plan: Mapping[str, torch.dtype] = model._get_dtype_plan(dtype)
    for name, parameter in model.named_parameters():
        for glob, other in plan.items():
            if _names_part(glob, name):
                parameter.data = parameter.data.to(other)


def _names_part(glob: str, name: str) -> bool:
    """Whether a glob matches as in transformers: `*` matches anything within one part of a name."""
    return re.search(re.escape(glob).replace(r"\*", ".*"), name) is not None
